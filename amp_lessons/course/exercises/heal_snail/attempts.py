"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_snail")

SCALER = "    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"
EPOCHS = "    for _ in range(epochs):\n"
BATCHES = "        for inputs, targets in loader:\n"
BACKWARD = "            scaler.scale(loss).backward()\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"

wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "in_each_batch",
    "scaler_recreated",
    "its scale, unless",
    (SCALER, ""),
    (BATCHES, BATCHES + "        " + SCALER),
)
wrong("kept_and_made_anew", "scaler_recreated", "is lost", (EPOCHS, EPOCHS + "    " + SCALER))
wrong(
    "begins_lower",
    "scaler_recreated",
    "new GradScaler",
    (SCALER, ""),
    (EPOCHS, EPOCHS + "    " + SCALER.replace("device_type,", "device_type, init_scale=1024.0,")),
)
wrong("never_updated", "no_update", "scaler.update()", (UPDATE, ""))
wrong(
    "updated_by_the_epoch",
    "no_update",
    "scaler.update()",
    (UPDATE, ""),
    ("        history.append", "        scaler.update()\n        history.append"),
)
wrong("fixed_scale", "scale_never_lowered", "overflowed", ("scaler.update()", "scaler.update(2.0**16)"))
wrong(
    "set_back_in_each_epoch",
    "scale_reset",
    "back to",
    (EPOCHS, EPOCHS + "        if scaler.is_enabled():\n            scaler.load_state_dict(fresh)\n"),
    (SCALER, SCALER + "    fresh = scaler.state_dict()\n"),
)
wrong(
    "without_a_scaler",
    "loss_not_scaled",
    "was not scaled",
    (SCALER, ""),
    (BACKWARD + STEP + UPDATE, "            loss.backward()\n            optimizer.step()\n"),
)
wrong(
    "old_scale_and_no_count",
    "scaler_recreated",
    "made during training",
    (
        EPOCHS,
        EPOCHS + "    " + SCALER.replace("device_type,", "device_type, init_scale=scaler.get_scale(),"),
    ),
)
wrong(
    "one_for_the_process",
    "scaler_kept",
    "earlier call",
    (
        SCALER,
        "    if not SCALERS:\n        SCALERS.append("
        + SCALER.split(" = ")[1][:-1]
        + ")\n    scaler = SCALERS[0]\n",
    ),
    ("def train", "SCALERS = []\n\n\ndef train"),
)
wrong(
    "one_for_each_dtype",
    "scaler_kept",
    "earlier call",
    ("device_type, dtype):", "device_type, dtype, scalers={}):"),
    (SCALER, "    scaler = scalers.setdefault(dtype, " + SCALER.split(" = ")[1][:-1] + ")\n"),
)
wrong(
    "state_in_a_default_argument",
    "scaler_kept",
    "its state",
    ("device_type, dtype):", "device_type, dtype, learned={}):"),
    (SCALER, SCALER + "    if learned and scaler.is_enabled():\n        scaler.load_state_dict(learned)\n"),
    ("    return history", "    learned.update(scaler.state_dict())\n    return history"),
)
wrong("stepped_past_it", "optimizer_step_direct", "directly", (STEP, "            optimizer.step()\n"))

right("made_by_keyword", ("GradScaler(device_type, ", "GradScaler(device=device_type, "))
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))


@TABLE.correct()
def state_handed_on(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    history, learned = [], None
    for _ in range(epochs):
        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
        if learned:
            scaler.load_state_dict(learned)
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        learned = scaler.state_dict()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def one_per_optimizer(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scalers = {id(optimizer): torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)}
    history = []
    for _ in range(epochs):
        scaler, losses = scalers[id(optimizer)], []
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history
