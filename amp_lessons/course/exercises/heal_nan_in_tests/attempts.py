"""Half-mended steps, and unusual right ones."""

from __future__ import annotations

import copy

import torch
from torch import nn

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("heal_nan_in_tests")
wrong = TABLE.mutant
right = TABLE.variant

KEPT = "    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}\n"
SKIPPED = "    if scaler.get_scale() < scale:  # the step was skipped\n"
BACK = "        for name, buffer in model.named_buffers():\n            buffer.copy_(kept[name])\n"
FORWARD = "        loss = loss_fn(model(inputs), targets)\n"
STEP = "    scaler.step(optimizer)\n"
BACKWARD = "    scaler.scale(loss).backward()\n"
RETURN = "    return loss.item()\n"

wrong("names_are_no_copies", "buffers_not_finite", "overflowed", (".clone()", ""))
wrong(
    "state_dict_is_no_copy",
    "buffers_not_finite",
    "overflowed",
    (KEPT, "    kept = model.state_dict()\n"),
    (BACK, "        model.load_state_dict(kept)\n"),
)
wrong("copied_too_late", "buffers_not_finite", "overflowed", (KEPT, ""), (BACKWARD, KEPT + BACKWARD))
wrong(
    "put_back_before_backward",
    "raised",
    "overflows",
    (SKIPPED + BACK, ""),
    (BACKWARD, "    if not loss.isfinite():\n" + BACK + BACKWARD),
)
wrong("put_back_where_it_grew", "buffers_not_finite", "overflowed", ("() < scale", "() > scale"))
wrong(
    "left_the_batch_out",
    "buffers_not_finite",
    "overflowed",
    (BACKWARD, "    if not loss.isfinite():\n        return loss.item()\n" + BACKWARD),
    (SKIPPED + BACK, ""),
)
wrong(
    "numbers_for_nan",
    "statistics_replaced",
    "others than before",
    (BACK, "        for buffer in model.buffers():\n            buffer.nan_to_num_()\n"),
)
wrong(
    "begun_anew",
    "statistics_replaced",
    "others than before",
    (
        BACK,
        "        for module in model.modules():\n"
        "            if isinstance(module, torch.nn.BatchNorm1d):\n"
        "                module.reset_running_stats()\n",
    ),
)
wrong("always_put_back", "statistics_replaced", "what they were", (SKIPPED, "    if True:\n"))
wrong("put_back_where_it_grew_too", "statistics_replaced", "what they were", ("() < scale", "() != scale"))
wrong(
    "of_the_first_norm_only",
    "buffers_not_finite",
    "`4.running_mean`",
    (
        "in model.named_buffers():\n            buffer",
        "in list(model.named_buffers())[:3]:\n            buffer",
    ),
)
wrong(
    "below_the_first_scale",
    "statistics_replaced",
    "what they were",
    (SKIPPED, "    if scaler.is_enabled() and scaler.get_scale() < 65536:\n"),
)
wrong(
    "statistics_switched_off",
    "statistics_replaced",
    "what they were",
    (
        KEPT,
        KEPT + "    for module in model.modules():\n"
        "        if isinstance(module, torch.nn.BatchNorm1d):\n            module.momentum = 0.0\n",
    ),
)
wrong("in_evaluation_mode", "evaluation_mode", "evaluation mode", (KEPT, "    model.eval()\n" + KEPT))
wrong(
    "twice_through_the_model",
    "statistics_replaced",
    "one forward pass",
    (FORWARD, "        model(inputs)\n" + FORWARD),
)
wrong("steps_past_the_scaler", "optimizer_step_direct", "directly", (STEP, "    optimizer.step()\n"))
wrong("no_autocast", "no_autocast", "fp32", ("dtype=dtype)", "dtype=dtype, enabled=False)"))
wrong("returns_nothing", "wrong_return_type", "a float", (RETURN, ""))

right("the_solution")
right("loss_comes_back", (RETURN, "    return loss.detach()\n"), notes=("returned_a_tensor",))
right(
    "whole_state_copied",
    (KEPT, "    import copy\n\n    kept = copy.deepcopy(model.state_dict())\n"),
    (BACK, "        model.load_state_dict(kept)\n"),
)
right("buffers_exchanged", (BACK, BACK.replace("buffer.copy_(kept[name])", "buffer.data = kept[name]")))


@TABLE.correct()
def gradients_asked(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    scaler.scale(loss).backward()
    if not all(p.grad.isfinite().all() for p in model.parameters()):
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


@TABLE.correct()
def steps_counted(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    made = []
    counting = optimizer.register_step_post_hook(lambda *_: made.append(True))
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    counting.remove()
    if not made:
        for buffer, before in zip(model.buffers(), kept.values(), strict=True):
            buffer.copy_(before)
    return float(loss)


@TABLE.correct("batch_left_out")
def left_out_and_put_back(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    kept = copy.deepcopy(dict(model.named_buffers()))
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    if loss.isfinite():
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    return loss.item()


@TABLE.correct("skipped_batch_counted")
def statistics_on_the_side(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    """The norms write nothing; what they would have is mixed in once the loss is known."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
    before = [(norm.running_mean, norm.running_var, norm.momentum) for norm in norms]
    for norm in norms:
        norm.running_mean, norm.running_var = norm.running_mean.clone(), norm.running_var.clone()
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    for norm, (mean, variance, _) in zip(norms, before, strict=True):
        if loss.isfinite():
            mean.copy_(norm.running_mean)
            variance.copy_(norm.running_var)
        norm.running_mean, norm.running_var = mean, variance
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()


right(
    "count_not_put_back",
    (BACK, BACK.replace("buffer.copy_", "if buffer.is_floating_point():\n                buffer.copy_")),
    notes=("skipped_batch_counted",),
)
