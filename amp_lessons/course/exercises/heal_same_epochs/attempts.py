"""Half-mended loops, and unusual right ones."""

from __future__ import annotations

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_same_epochs")

AUTOCAST = "            with torch.autocast(device_type, dtype=dtype):\n"
LOSS = "                loss = loss_fn(model(inputs), targets)\n"
REST = "            scaler.scale(loss).backward()\n            scaler.step(optimizer)\n            scaler.update()\n"
BATCHES = "        for inputs, targets in loader:\n"


def indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


wrong = TABLE.mutant
right = TABLE.variant

wrong("everything_of_a_batch_inside", "backward_in_autocast", "backward", (REST, indented(REST)))
wrong("taken_out_altogether", "no_autocast", "autocast", (AUTOCAST, "            if True:\n"))
wrong(
    "loss_left_outside",
    "loss_outside_autocast",
    "loss",
    (LOSS, "                outputs = model(inputs)\n            loss = loss_fn(outputs, targets)\n"),
)
wrong(
    "around_the_loss_only",
    "no_autocast",
    "model(inputs)",
    (
        AUTOCAST + LOSS,
        "            outputs = model(inputs)\n" + AUTOCAST + LOSS.replace("model(inputs)", "outputs"),
    ),
)
wrong(
    "weights_cast_instead",
    "half_parameters",
    "16-bit",
    (
        AUTOCAST + LOSS,
        "            model.to(dtype)\n            loss = loss_fn(model(inputs.to(dtype)).float(), targets)\n",
    ),
)
wrong(
    "a_new_scaler_as_well",
    "scaler_recreated",
    "new GradScaler",
    (
        BATCHES,
        "        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n" + BATCHES,
    ),
)
wrong(
    "cache_off_for_the_process",
    "leaves_state_behind",
    "cache",
    (BATCHES, "        torch.set_autocast_cache_enabled(False)\n" + BATCHES),
)
wrong(
    "default_dtype_of_the_process",
    "leaves_state_behind",
    "default dtype of autocast",
    (BATCHES, "        torch.set_autocast_dtype(device_type, dtype)\n" + BATCHES),
    ("(device_type, dtype=dtype)", "(device_type)"),
)
wrong("dtype_forgotten", "wrong_autocast_dtype", "bf16", ("dtype=dtype)", "dtype=torch.bfloat16)"))


@TABLE.mistake("one_big_autocast", "old weights")
def one_context_per_epoch(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        with torch.autocast(device_type, dtype=dtype):
            for inputs, targets in loader:
                optimizer.zero_grad()
                loss = loss_fn(model(inputs), targets)
                with torch.autocast(device_type, enabled=False):
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.mistake("one_big_autocast", "old weights")
def one_context_for_two_batches(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses, batches = [], list(loader)
        for i in range(0, len(batches), 2):
            with torch.autocast(device_type, dtype=dtype):
                for x, y in batches[i : i + 2]:
                    optimizer.zero_grad()
                    loss = loss_fn(model(x), y)
                    with torch.autocast(device_type, enabled=False):
                        scaler.scale(loss).backward()
                        scaler.step(optimizer)
                        scaler.update()
                    losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history


@TABLE.mistake("one_big_autocast", "old weights")
def a_second_context_inside_the_first(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    with torch.autocast(device_type, dtype=dtype):
        return TABLE.changed()(
            model, loader, optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype
        )


@TABLE.correct()
def entered_and_left_by_hand(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            context = torch.autocast(device_type, dtype=dtype)
            context.__enter__()
            loss = loss_fn(model(x), y)
            context.__exit__(None, None, None)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history


@TABLE.correct()
def a_function_for_each_batch(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)

    def trained_on(x, y):
        with torch.autocast(device_type, dtype=dtype):
            loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return [sum(trained_on(x, y) for x, y in loader) / len(loader) for _ in range(epochs)]


@TABLE.correct()
def one_context_whose_cache_is_emptied(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    with torch.autocast(device_type, dtype=dtype):
        for _ in range(epochs):
            total = 0.0
            for x, y in loader:
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                with torch.autocast(device_type, enabled=False):
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                torch.clear_autocast_cache()
                total += loss.item()
            history.append(total / len(loader))
    return history


right("not_cached", ("dtype=dtype)", "dtype=dtype, cache_enabled=False)"))
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))
