"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_wasted_batches")

EPOCHS = "    for _ in range(epochs):\n"
BACKWARD = "            scaler.scale(loss / accumulation_steps).backward()\n"
IF = "            if (i + 1) % accumulation_steps == 0 or i + 1 == len(data):\n"
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
    "update_before_step",
    "before scaler.step",
    (UPDATE + ZERO, ZERO + outside(UPDATE)),
)
wrong(
    "steps_in_every_batch_as_well",
    "step_within_window",
    "within a window",
    (IF + UNSCALE + STEP + UPDATE + ZERO, outside(STEP) + outside(UPDATE) + outside(ZERO)),
)
wrong(
    "zeroed_in_every_batch",
    "window_cleared",
    "what it held before is lost",
    (BACKWARD, outside(ZERO) + BACKWARD),
)
wrong("no_longer_divided", "loss_not_divided", "times too large", ("loss / accumulation_steps", "loss"))
wrong(
    "multiplied_against_the_symptom",
    "loss_rescaled",
    "multiplied by 3",
    ("loss / accumulation_steps", "loss * accumulation_steps"),
)
wrong("last_window_dropped", "last_window_dropped", "left over", (" or i + 1 == len(data)", ""))
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

# one backward pass for a window
SUMMED = (
    ("        history.append(0.0)\n", "        history.append(0.0)\n        summed = 0.0\n"),
    (BACKWARD, "            summed = summed + loss / accumulation_steps\n"),
)
ONE_BACKWARD = (
    *SUMMED,
    (IF, IF + "                scaler.scale(summed).backward()\n"),
    (ZERO, ZERO + "                summed = 0.0\n"),
)
right("one_backward_for_a_window", *ONE_BACKWARD)
wrong(
    "one_backward_over_a_sum",
    "loss_not_divided",
    "added up",
    *ONE_BACKWARD,
    ("loss / accumulation_steps", "loss"),
)
wrong(
    "one_backward_and_no_last_one",
    "no_backward",
    "never called",
    *ONE_BACKWARD,
    (" or i + 1 == len(data)", ""),
)
wrong(
    "graphs_kept_from_window_to_window",
    "backward_twice",
    "twice",
    *SUMMED,
    (IF, IF + "                scaler.scale(summed).backward(retain_graph=True)\n"),
)
wrong(
    "losses_added_up_in_16_bits",
    "loss_in_half",
    "cast to fp16",
    *ONE_BACKWARD,
    ("summed + loss /", "summed + loss.to(dtype) /"),
)
wrong(
    "counted_over_epochs",
    "last_window_dropped",
    "left over",
    (EPOCHS, "    count = 0\n" + EPOCHS),
    (BACKWARD, BACKWARD + "            count += 1\n"),
    (IF, "            if count % accumulation_steps == 0:\n"),
)
wrong(
    "counted_from_call_to_call",
    "step_within_window",
    "within a window",
    ("device_type, dtype):", "device_type, dtype, count=[]):"),
    (BACKWARD, BACKWARD + "            count.append(1)\n"),
    (IF, "            if len(count) % accumulation_steps == 0 or i + 1 == len(data):\n"),
)
wrong(
    "last_batch_decides",
    "overflow_not_skipped",
    "now inf or NaN",
    (EPOCHS, "    sums = {p: torch.zeros_like(p) for p in model.parameters()}\n" + EPOCHS),
    (BACKWARD, "            optimizer.zero_grad()\n" + BACKWARD + "            scaler.unscale_(optimizer)\n"),
    (IF, "            for p in sums:\n                sums[p] += p.grad\n" + IF),
    (UNSCALE, "                for p in sums:\n                    p.grad.copy_(sums[p])\n"),
    (UPDATE, ""),
    (ZERO, "                sums = {p: torch.zeros_like(p) for p in sums}\n            scaler.update()\n"),
)

right("left_to_the_step", (UNSCALE, ""))
right(
    "counted_from_one",
    ("enumerate(data)", "enumerate(data, 1)"),
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


@TABLE.correct()
def one_backward_over_the_mean(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    """A window's losses are kept with their graphs; a shorter one has the mean of its own."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses, batches = [], list(loader)
        for first in range(0, len(batches), accumulation_steps):
            with torch.autocast(device_type, dtype=dtype):
                window = [loss_fn(model(x), y) for x, y in batches[first : first + accumulation_steps]]
            optimizer.zero_grad()
            scaler.scale(torch.stack(window).mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            losses += [loss.item() for loss in window]
        history.append(sum(losses) / len(losses))
    return history


@TABLE.correct()
def added_up_by_hand_in_16_bits(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    """In windows of three, rounding the sum costs less than the passes in 16 bits do."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total, sums = 0.0, []
        for i, (x, y) in enumerate(loader, start=1):
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss / accumulation_steps).backward()
            gradients = [p.grad.to(dtype) for p in model.parameters()]
            sums = [a + b for a, b in zip(sums, gradients, strict=True)] if sums else gradients
            total += loss.item()
            if i % accumulation_steps == 0 or i == len(loader):
                for p, gradient in zip(model.parameters(), sums, strict=True):
                    p.grad = gradient.float()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                sums = []
        history.append(total / len(loader))
    return history
