"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.exercises.attempts import Table

TABLE = Table("heal_wasted_batches")

BACKWARD = "            scaler.scale(loss / accumulation_steps).backward()\n"
IF = "            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):\n"
UNSCALE = "                scaler.unscale_(optimizer)\n"
STEP = "                scaler.step(optimizer)\n"
UPDATE = "                scaler.update()\n"
ZERO = "                optimizer.zero_grad()\n"


def outside(line: str) -> str:
    return line.removeprefix("    ")


wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "update_moved_only",
    "update_every_batch",
    "within a window",
    (IF + UNSCALE, outside(UNSCALE) + IF),
)
wrong(
    "unscale_moved_only",
    "update_every_batch",
    "within a window",
    (UPDATE + ZERO, ZERO + outside(UPDATE)),
)
wrong(
    "steps_in_every_batch_as_well",
    "steps_every_batch",
    "within a window",
    (IF + UNSCALE + STEP + UPDATE + ZERO, outside(STEP) + outside(UPDATE) + outside(ZERO)),
)
wrong("zeroed_in_every_batch", "window_cleared", "only the last batch", (BACKWARD, outside(ZERO) + BACKWARD))
wrong("no_longer_divided", "loss_not_divided", "times too large", ("loss / accumulation_steps", "loss"))
wrong(
    "multiplied_against_the_symptom",
    "loss_rescaled",
    "multiplied by 3",
    ("loss / accumulation_steps", "loss * accumulation_steps"),
)
wrong("last_window_dropped", "last_window_dropped", "left over", (" or i + 1 == len(loader)", ""))
wrong("update_forgotten", "no_update", "scaler.update()", (UPDATE, ""))
wrong(
    "divided_by_hand_instead",
    "step_bypasses_scaler",
    "directly",
    (
        UNSCALE + STEP + UPDATE,
        "                for p in model.parameters():\n                    p.grad /= scaler.get_scale()\n"
        "                optimizer.step()\n",
    ),
)

right("left_to_the_step", (UNSCALE, ""))
right(
    "counted_from_one",
    ("enumerate(loader)", "enumerate(loader, 1)"),
    (IF, IF.replace("i + 1", "i").replace("(i)", "i")),
)
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))


@TABLE.correct()
def clipped_beside_the_step(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        optimizer.zero_grad()
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                losses.append(loss_fn(model(x), y))
            scaler.scale(losses[-1].div(accumulation_steps)).backward()
            losses[-1] = losses[-1].item()
            if len(losses) % accumulation_steps and len(losses) < len(loader):
                continue
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), float("1e9"))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        history.append(sum(losses) / len(losses))
    return history
