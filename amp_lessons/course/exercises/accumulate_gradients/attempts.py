"""Wrong and right loops that accumulate."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("accumulate_gradients")

BACKWARD = "            scaler.scale(loss / accumulation_steps).backward()\n"
IF = "            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):\n"
STEP = "                scaler.step(optimizer)\n"
UPDATE = "                scaler.update()\n"
ZERO = "                optimizer.zero_grad()\n"
EPOCHS = "    for _ in range(epochs):\n"
SCALER = "    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"

wrong = TABLE.mutant
right = TABLE.variant


def outer(line: str) -> str:
    return line.replace("                ", "            ", 1)


MADE = "GradScaler(device_type, "
wrong(
    "scale_that_windows_undo",
    "scale_too_small",
    "the loss scale 2 is too small",
    (MADE, f"{MADE}init_scale=2.0, "),
)
wrong(
    "gradients_divided_as_well",
    "gradients_changed",
    "multiplied by 0.3333",
    (
        STEP,
        "                for p in model.parameters():\n                    p.grad /= accumulation_steps\n"
        + STEP,
    ),
)
wrong("loss_not_divided", "loss_not_divided", "3 times too large", ("loss / accumulation_steps", "loss"))
wrong(
    "divided_by_position",
    "loss_divided_unevenly",
    "same scale and divisor",
    ("loss / accumulation_steps", "loss / (i % accumulation_steps + 1)"),
)
wrong("divided_twice", "loss_rescaled", "0.33", ("loss / accumulation_steps", "loss / accumulation_steps**2"))
wrong("step_within_window", "step_within_window", "within a window", (IF, "            if True:\n"))
wrong("steps_one_too_early", "step_within_window", "within a window", ("(i + 1) %", "i %"))
wrong(
    "unscale_every_batch",
    "update_every_batch",
    "within a window",
    (BACKWARD, BACKWARD + "            scaler.unscale_(optimizer)\n"),
)
wrong(
    "update_every_batch",
    "update_before_step",
    "before scaler.step",
    (UPDATE, ""),
    (ZERO, ZERO + "            scaler.update()\n"),
)
wrong(
    "unscale_and_update_every_batch",
    "update_every_batch",
    "multiplied by one scale",
    (BACKWARD, BACKWARD + "            scaler.unscale_(optimizer)\n"),
    (UPDATE, ""),
    (ZERO, ZERO + "            scaler.update()\n"),
)
wrong(
    "zero_every_batch",
    "window_cleared",
    "what it held before is lost",
    (ZERO, ""),
    (BACKWARD, outer(ZERO) + BACKWARD),
)
wrong("never_zeroed", "no_zero_grad", "zero", (ZERO, ""))
wrong("last_window_dropped", "last_window_dropped", "left over", (" or i + 1 == len(loader)", ""))
wrong(
    "last_window_dropped_and_cleared",
    "last_window_dropped",
    "left over",
    (" or i + 1 == len(loader)", ""),
    (EPOCHS, EPOCHS + "        optimizer.zero_grad()\n"),
)
wrong("no_update", "no_update", "ended without scaler.update()", (UPDATE, ""))
wrong(
    "no_scaler",
    "loss_not_scaled",
    "backward began with a gradient of",
    (BACKWARD, "            (loss / accumulation_steps).backward()\n"),
    (STEP, "                optimizer.step()\n"),
    (UPDATE, ""),
)
wrong(
    "undivided_and_unscaled",
    "loss_not_scaled",
    "gradient of 1",
    (BACKWARD, "            loss.backward()\n"),
    (STEP, "                optimizer.step()\n"),
    (UPDATE, ""),
)
wrong(
    "optimizer_step_direct", "optimizer_step_direct", "directly", (STEP, "                optimizer.step()\n")
)
wrong("new_scaler_per_window", "scaler_recreated", "new GradScaler", (SCALER, ""), (
    "        for i, (inputs, targets) in enumerate(loader):\n",
    "        for i, (inputs, targets) in enumerate(loader):\n            if i % accumulation_steps == 0:\n            " + SCALER,
))  # fmt: skip
wrong(
    "divided_loss_logged",
    "history_not_mean",
    "divided by accumulation_steps",
    ("            total += loss.item()\n", "            total += loss.item() / accumulation_steps\n"),
)
wrong(
    "one_big_autocast",
    "one_big_autocast",
    "old weights",
    (
        EPOCHS,
        "    before = torch.get_autocast_dtype(device_type)\n"
        "    torch.set_autocast_enabled(device_type, True)\n    torch.set_autocast_dtype(device_type, dtype)\n    torch.autocast_increment_nesting()\n"
        + EPOCHS,
    ),
    (
        "    return history",
        "    torch.autocast_decrement_nesting()\n    torch.clear_autocast_cache()\n    torch.set_autocast_enabled(device_type, False)\n"
        "    torch.set_autocast_dtype(device_type, before)\n    return history",
    ),
)
wrong(
    "steps_on_two_batches",
    "step_within_window",
    "window of 3",
    ("(i + 1) % accumulation_steps", "(i + 1) % 2"),
)
wrong(
    "first_window_only",
    "batches_skipped",
    "training passes were made",
    (ZERO, ZERO + "                break\n"),
)
wrong(
    "unscale_then_direct_step",
    "step_bypasses_scaler",
    "directly",
    (STEP, "                scaler.unscale_(optimizer)\n                optimizer.step()\n"),
)

LEFT_OVER = (" or i + 1 == len(loader)", "")
APPEND = "        history.append(total / len(loader))\n"


def after_the_epoch(*lines: str) -> tuple[str, str]:
    """Do this with the batches that are left over when the loader is at its end."""
    block = "".join(f"            {line}\n" for line in lines)
    return APPEND, "        if len(loader) % accumulation_steps:\n" + block + APPEND


wrong(
    "left_over_steps_past_the_scaler",
    "step_bypasses_scaler",
    "directly",
    LEFT_OVER,
    after_the_epoch(
        "scaler.unscale_(optimizer)", "optimizer.step()", "scaler.update()", "optimizer.zero_grad()"
    ),
)
wrong(
    "left_over_without_the_nan_that_the_scaler_saw",
    "step_bypasses_scaler",
    "directly",
    LEFT_OVER,
    after_the_epoch(
        "scaler.unscale_(optimizer)",
        "for p in model.parameters():",
        "    p.grad.nan_to_num_(0.0, 0.0, 0.0)",
        "optimizer.step()",
        "scaler.update()",
        "optimizer.zero_grad()",
    ),
)
wrong(
    "left_over_clipped_before_the_scaler_looks",
    "overflow_hidden",
    "clip_grad_value_",
    LEFT_OVER,
    after_the_epoch(
        "torch.nn.utils.clip_grad_value_(model.parameters(), 1e3)",
        "scaler.step(optimizer)",
        "scaler.update()",
        "optimizer.zero_grad()",
    ),
)
wrong(
    "left_over_without_nan",
    "overflow_hidden",
    "nan_to_num",
    LEFT_OVER,
    after_the_epoch(
        "for p in model.parameters():",
        "    p.grad.nan_to_num_(0.0, 0.0, 0.0)",
        "scaler.step(optimizer)",
        "scaler.update()",
        "optimizer.zero_grad()",
    ),
)
wrong(
    "divided_by_the_batches_of_the_loader",
    "loss_rescaled",
    "multiplied by 0.1667 before backward, where 0.3333 is right",
    ("loss / accumulation_steps", "loss / len(loader)"),
)
wrong(
    "one_step_too_many",
    "step_without_backward",
    "once more",
    (APPEND, "        scaler.step(optimizer)\n        scaler.update()\n" + APPEND),
)
wrong(
    "one_step_too_many_on_zeros",
    "step_without_backward",
    "no backward pass in between",
    (ZERO, ZERO.replace("()", "(set_to_none=False)")),
    (APPEND, "        scaler.step(optimizer)\n        scaler.update()\n" + APPEND),
)
wrong(
    "one_backward_per_window",
    "losses_summed",
    "all graphs were kept",
    (BACKWARD, "            kept = kept + [loss] if i % accumulation_steps else [loss]\n"),
    (IF, IF + "                scaler.scale(torch.stack(kept).mean()).backward()\n"),
)

wrong(
    "step_before_the_last_backward",
    "step_before_backward",
    "the window's last batch",
    (BACKWARD + IF + STEP, IF + STEP),
    (ZERO, ZERO + BACKWARD),
)
wrong(
    "windows_across_epochs",
    "last_window_dropped",
    "a window of the next epoch",
    ("    history = []\n", "    history, count = [], 0\n"),
    (IF, "            count += 1\n            if count % accumulation_steps == 0:\n"),
)
wrong(
    "windows_of_four",
    "steps_too_rarely",
    "followed only 4 (4, 6, 10, 12)",
    ("(i + 1) % accumulation_steps", "(i + 1) % (accumulation_steps + 1)"),
)
wrong(
    "only_the_last_loss_logged",
    "history_not_mean",
    "instead of",
    ("            total += loss.item()\n", ""),
    (STEP, "                total += loss.item()\n" + STEP),
)

SKIP = "            if not torch.isfinite(loss):\n                continue\n"

wrong(
    "skips_nan_losses",
    "steps_too_rarely",
    "one belongs after each window",
    (BACKWARD, SKIP + BACKWARD),
)
wrong(
    "skips_nan_losses_after_backward",
    "steps_too_rarely",
    "one belongs after each window",
    (BACKWARD, BACKWARD + SKIP),
)
wrong(
    "clears_the_window_at_nan",
    "window_cleared",
    "a loss or gradients that were not finite",
    (BACKWARD, BACKWARD + SKIP.replace("continue", "optimizer.zero_grad()\n                continue")),
)
wrong(
    "clears_the_window_before_the_backward_of_nan",
    "window_cleared",
    "a loss or gradients that were not finite",
    (BACKWARD, SKIP.replace("continue", "optimizer.zero_grad()\n                continue") + BACKWARD),
)
wrong(
    "stops_before_the_batches_left_over",
    "batches_skipped",
    "6 training passes",
    ("            with torch", "            if i >= len(loader) // accumulation_steps * accumulation_steps:\n                break\n            with torch"),
)  # fmt: skip
wrong(
    "steps_on_a_window_of_nothing_but_nan",
    "step_without_backward",
    "no backward pass in between",
    (BACKWARD, "            if torch.isfinite(loss):\n    " + BACKWARD),
)

right("the_solution")
right(
    "leaves_nan_losses_out_of_the_window",
    ("total = 0.0\n", "total, waiting = 0.0, 0\n"),
    (BACKWARD, "            if torch.isfinite(loss):\n                waiting += 1\n    " + BACKWARD),
    (STEP + UPDATE, f"                if waiting:\n    {STEP}    {UPDATE}                waiting = 0\n"),
    notes=("batch_left_out",),
)
right(
    "leaves_out_the_whole_window_of_a_nan_loss",
    ("    history = []\n", "    history, spoilt = [], False\n"),
    (BACKWARD, "            spoilt = spoilt or not torch.isfinite(loss)\n            if not spoilt:\n    " + BACKWARD),
    (STEP + UPDATE + ZERO, f"                if not spoilt:\n    {STEP}    {UPDATE}{ZERO}                spoilt = False\n"),
    notes=("batch_left_out",),
)  # fmt: skip
right(
    "gradients_divided_instead",
    ("loss / accumulation_steps", "loss"),
    (
        STEP,
        "                for p in model.parameters():\n                    p.grad /= accumulation_steps\n"
        + STEP,
    ),
)
right(
    "zero_at_the_start_of_a_window",
    (ZERO, ""),
    (
        "            with torch",
        "            if i % accumulation_steps == 0:\n                optimizer.zero_grad()\n            with torch",
    ),
)
right(
    "last_window_by_its_own_length",
    (
        BACKWARD,
        "            start = i - i % accumulation_steps\n"
        + BACKWARD.replace("accumulation_steps", "min(accumulation_steps, len(loader) - start)"),
    ),
)
right(
    "scaled_then_divided",
    ("scaler.scale(loss / accumulation_steps)", "(scaler.scale(loss) / accumulation_steps)"),
)
right("explicit_unscale", (STEP, "                scaler.unscale_(optimizer)\n" + STEP))


@TABLE.correct()
def divides_inside_and_logs_undivided(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    optimizer.zero_grad()
    for _ in range(epochs):
        total, waiting = 0.0, 0
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y) / accumulation_steps
            scaler.scale(loss).backward()
            waiting += 1
            total += loss.item() * accumulation_steps
            if waiting == accumulation_steps:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                waiting = 0
        if waiting:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def window_by_window(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    batches = list(loader)
    history = []
    for _ in range(epochs):
        losses = []
        for start in range(0, len(batches), accumulation_steps):
            optimizer.zero_grad()
            for x, y in batches[start : start + accumulation_steps]:
                with torch.autocast(device_type, dtype=dtype):
                    loss = loss_fn(model(x), y)
                scaler.scale(loss).div(accumulation_steps).backward()
                losses.append(loss.item())
            scaler.step(optimizer)
            scaler.update()
        history.append(sum(losses) / len(losses))
    return history
