"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import math

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_missed_warm_up")

EPOCHS = "    for _ in range(epochs):\n"
IF = "            if scaler.get_scale() >= scale:\n"
SCALE = "            scale = scaler.get_scale()\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
SCHEDULE = "                scheduler.step()\n"
AVERAGE = "                average.update_parameters(model)\n"
APPEND = "            history[-1] += loss.item() / len(data)\n"


def outside(line: str) -> str:
    return line.removeprefix("    ")


wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "schedule_left_outside",
    "schedule_on_skipped_step",
    "10 times for 6",
    (SCHEDULE + AVERAGE, AVERAGE + outside(SCHEDULE)),
)
wrong("average_left_outside", "average_on_skipped_step", "10 times for 6", (AVERAGE, outside(AVERAGE)))
HOOK = """
    def go_on(*_):
        scheduler.step()
        average.update_parameters(model)

    hook = optimizer.register_step_post_hook(go_on)
"""
START = "enabled=dtype == torch.float16), []\n"
wrong(
    "hook_left_on_the_optimizer",
    "schedule_out_of_turn",
    "after your function had returned",
    (START, START + HOOK),
    (IF + SCHEDULE + AVERAGE, ""),
)
right(
    "hook_removed_at_the_end",
    (START, START + HOOK),
    (IF + SCHEDULE + AVERAGE, ""),
    ("    return history", "    hook.remove()\n    return history"),
)
wrong(
    "growth_taken_for_a_skip",
    "schedule_out_of_turn",
    "steps of the optimizer",
    ("scaler.get_scale() >= scale", "scaler.get_scale() == scale"),
)
wrong(
    "only_finite_losses",
    "schedule_on_skipped_step",
    "skipped the step",
    (IF, "            if torch.isfinite(loss):\n"),
)
wrong(
    "compared_before_update",
    "schedule_on_skipped_step",
    "skipped the step",
    (UPDATE + IF + SCHEDULE + AVERAGE, IF + SCHEDULE + AVERAGE + UPDATE),
)
wrong(
    "once_per_epoch",
    "schedule_out_of_turn",
    "steps of the optimizer",
    (SCHEDULE, ""),
    (APPEND, APPEND + "        scheduler.step()\n"),
)
wrong(
    "average_once_per_epoch",
    "average_out_of_turn",
    "steps of the optimizer",
    (AVERAGE, ""),
    (APPEND, APPEND + outside(outside(AVERAGE))),
)
wrong("both_taken_out", "schedule_out_of_turn", "0 times", (IF + SCHEDULE + AVERAGE, ""))
wrong(
    "update_only_after_a_step",
    "update_without_step",
    "inf check",
    (STEP + UPDATE, "            if torch.isfinite(loss):\n    " + STEP + UPDATE),
)
wrong(
    "the_scaler_switched_off",
    "loss_not_scaled",
    "enabled=False",
    ("enabled=dtype == torch.float16", "enabled=False"),
)
wrong(
    "what_step_returns",
    "schedule_out_of_turn",
    "0 times",
    (STEP, "            made = scaler.step(optimizer)\n"),
    (IF, "            if made:\n"),
)

wrong(
    "afraid_of_a_scale_that_grows",
    "raised",
    "the scale has grown",
    (
        UPDATE,
        UPDATE
        + "            if scaler.get_scale() > scale:\n                raise ValueError('the scale has grown')\n",
    ),
)

# both know whether the step will be made, and go on before it
UNSCALED = """            scaler.unscale_(optimizer)
            will_step = all(bool(p.grad.isfinite().all()) for p in model.parameters())
"""
BEFORE = "            if will_step:\n"
AFTERWARDS = SCALE + STEP + UPDATE + IF + SCHEDULE + AVERAGE
wrong(
    "both_before_the_step",
    "schedule_out_of_turn",
    "was at 1 instead of 0",
    (AFTERWARDS, UNSCALED + BEFORE + SCHEDULE + AVERAGE + STEP + UPDATE),
)
wrong(
    "average_before_the_step",
    "average_out_of_turn",
    "was at 1 instead of 0",
    (AFTERWARDS, UNSCALED + BEFORE + AVERAGE + STEP + UPDATE + BEFORE + SCHEDULE),
)
wrong(
    "made_up_for_at_the_end_of_the_epoch",
    "schedule_out_of_turn",
    "was at 0 instead of 1",
    ("        history.append(0.0)\n", "        history.append(0.0)\n        made = 0\n"),
    (IF + SCHEDULE + AVERAGE, "            made += scaler.get_scale() >= scale\n"),
    (APPEND, APPEND + "        for _ in range(made):\n    " + outside(SCHEDULE) + "    " + outside(AVERAGE)),
)

wrong(
    "kept_from_call_to_call",
    "schedule_out_of_turn",
    "times for",
    ("device_type, dtype):", "device_type, dtype, seen=[]):"),
    (IF, "            seen.append(scaler.get_scale())\n            if seen[-1] >= max(seen[-2:]):\n"),
)
wrong(
    "one_behind",
    "schedule_out_of_turn",
    "steps of the optimizer",
    (EPOCHS, "    made = False\n" + EPOCHS),
    (
        "            optimizer.zero_grad()\n",
        "            if made:\n" + SCHEDULE + AVERAGE + "            optimizer.zero_grad()\n",
    ),
    (IF + SCHEDULE + AVERAGE, "            made = scaler.get_scale() >= scale\n"),
)

right("asked_the_other_way_round", (IF, "            if not scaler.get_scale() < scale:\n"))
right("average_first", (SCHEDULE + AVERAGE, AVERAGE + SCHEDULE))


@TABLE.correct()
def told_by_a_hook(model, loader, optimizer, loss_fn, epochs, *, scheduler, average, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    made = []
    hook = optimizer.register_step_post_hook(lambda *_: made.append(True))
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            while made:
                scheduler.step()
                average.update_parameters(model)
                made.pop()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    hook.remove()
    return history


@TABLE.correct()
def told_by_the_norm(model, loader, optimizer, loss_fn, epochs, *, scheduler, average, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if math.isfinite(norm):
                scheduler.step()
                average.update_parameters(model)
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def before_the_next_batch(
    model, loader, optimizer, loss_fn, epochs, *, scheduler, average, device_type, dtype
):
    def go_on(made):
        if made:
            scheduler.step()
            average.update_parameters(model)

    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history, made = [], False
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            go_on(made)
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            made = scaler.get_scale() >= scale
            total += loss.item()
        history.append(total / len(loader))
    go_on(made)
    return history
