"""Wrong and right training loops."""

from __future__ import annotations

import contextlib
import copy
import itertools
import queue
import textwrap
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("train_with_amp")

ZERO = "            optimizer.zero_grad()\n"
AUTOCAST = "            with torch.autocast(device_type, dtype=dtype):\n"
LOSS = "                loss = loss_fn(model(inputs), targets)\n"
BACKWARD = "            scaler.scale(loss).backward()\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
TOTAL = "            total += loss.item()\n"
APPEND = "        history.append(total / len(loader))\n"
SCALER = "    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"
EPOCHS = "    for _ in range(epochs):\n"
BATCHES = "        for inputs, targets in loader:\n"
UNSCALE = "            scaler.unscale_(optimizer)\n"
CLIP = "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
FORWARD_AND_LOSS = AUTOCAST + LOSS

wrong = TABLE.mutant
right = TABLE.variant

# --- where autocast starts and stops
wrong("no_autocast", "no_autocast", "autocast", (AUTOCAST, "            if True:\n"))
wrong(
    "autocast_disabled",
    "no_autocast",
    "fp32",
    (AUTOCAST, AUTOCAST.replace("dtype=dtype", "enabled=False")),
)
wrong(
    "autocast_around_loss_only",
    "no_autocast",
    "model(inputs)",
    (
        FORWARD_AND_LOSS,
        "            out = model(inputs)\n" + AUTOCAST + "                loss = loss_fn(out, targets)\n",
    ),
)
wrong("always_bfloat16", "wrong_autocast_dtype", "bf16", ("dtype=dtype)", "dtype=torch.bfloat16)"))
wrong("always_float16", "wrong_autocast_dtype", "fp16", ("dtype=dtype)", "dtype=torch.float16)"))
wrong(
    "loss_outside_autocast",
    "loss_outside_autocast",
    "loss",
    (LOSS, "                out = model(inputs)\n            loss = loss_fn(out, targets)\n"),
)
wrong("loss_cast_to_half", "loss_in_half", "65504", ("scaler.scale(loss)", "scaler.scale(loss.half())"))
wrong("loss_fn_half", "loss_in_half", "loss", (LOSS, LOSS.replace("targets)", "targets).to(dtype)")))
wrong(
    "backward_inside_autocast",
    "backward_in_autocast",
    "backward",
    (BACKWARD, "                scaler.scale(loss).backward()\n"),
)
wrong(
    "whole_iteration_inside_autocast",
    "backward_in_autocast",
    "backward",
    (
        BACKWARD + STEP + UPDATE,
        "".join("    " + line + "\n" for line in (BACKWARD + STEP + UPDATE).splitlines()),
    ),
)


@TABLE.mistake("one_big_autocast", "outlived an optimizer step")
def one_big_autocast(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    with torch.autocast(device_type, dtype=dtype):
        for _ in range(epochs):
            losses = []
            for x, y in loader:
                optimizer.zero_grad()
                loss = loss_fn(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())
            history.append(sum(losses) / len(losses))
    return history


@TABLE.mistake("one_big_autocast", "old weights")
def autocast_decorates_the_whole_function(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    @torch.autocast(device_type, dtype=dtype)
    def everything():
        return TABLE.changed()(
            model, loader, optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype
        )

    return everything()


# --- the scaler's protocol
wrong(
    "no_scaler",
    "loss_not_scaled",
    "backward began with a gradient of",
    (SCALER, ""),
    (BACKWARD, "            loss.backward()\n"),
    (STEP, "            optimizer.step()\n"),
    (UPDATE, ""),
)
wrong(
    "scaler_disabled", "loss_not_scaled", "enabled=False", ("enabled=dtype == torch.float16", "enabled=False")
)
wrong(
    "enabled_the_wrong_way_round",
    "loss_not_scaled",
    "enabled=False",
    ("== torch.float16", "== torch.bfloat16"),
)
wrong(
    "init_scale_one",
    "loss_not_scaled",
    "multiplied it by 1",
    ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=1.0, "),
)
wrong(
    "init_scale_two",
    "scale_too_small",
    "too small",
    ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0, "),
)
wrong(
    "scale_forgotten",
    "loss_not_scaled",
    "not multiplied by scaler.scale(loss)",
    (BACKWARD, "            loss.backward()\n"),
)
wrong(
    "scaled_loss_discarded",
    "scaled_loss_discarded",
    "unscaled loss",
    (BACKWARD, "            scaler.scale(loss)\n            loss.backward()\n"),
)
wrong(
    "name_of_the_loss_given_to_the_scaled_one",
    "history_scaled",
    "jumps whenever the scale changes",
    (BACKWARD, "            loss = scaler.scale(loss)\n            loss.backward()\n"),
)
wrong("optimizer_step_direct", "optimizer_step_direct", "directly", (STEP, "            optimizer.step()\n"))
wrong(
    "optimizer_step_direct_without_update",
    "gradients_still_scaled",
    "without being unscaled",
    (STEP + UPDATE, "            optimizer.step()\n"),
)
wrong(
    "unscale_then_optimizer_step",
    "step_bypasses_scaler",
    "optimizer.step() was called directly",
    (
        STEP,
        "            if scaler.is_enabled():\n                scaler.unscale_(optimizer)\n            optimizer.step()\n",
    ),
)
wrong("both_steps", "double_step", "twice", (STEP, STEP + "            optimizer.step()\n"))
wrong(
    "optimizer_step_then_scaler_step",
    "gradients_still_scaled",
    "without being unscaled",
    (STEP, "            optimizer.step()\n" + STEP),
)
wrong("scaler_step_twice", "double_step", "twice", (STEP, STEP + STEP))
wrong("no_update", "no_update", "scaler.update()", (UPDATE, ""))
wrong(
    "update_once_per_epoch",
    "no_update",
    "scaler.update()",
    (UPDATE, ""),
    (APPEND, APPEND + "        scaler.update()\n"),
)
wrong("update_twice", "update_twice", "twice", (UPDATE, UPDATE + UPDATE))
wrong("update_before_step", "update_before_step", "before scaler.step", (STEP + UPDATE, UPDATE + STEP))
wrong("update_with_a_constant", "scale_never_lowered", "scale", ("scaler.update()", "scaler.update(2.0**16)"))
wrong(
    "no_update_after_a_skip",
    "no_update",
    "after an overflow",
    (
        STEP,
        UNSCALE
        + "            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)\n"
        + "            if not torch.isfinite(norm):\n                continue\n"
        + STEP,
    ),
)
wrong("no_step", "no_step", "no step", (STEP + UPDATE, ""))
wrong("step_before_backward", "step_before_backward", "before backward", (BACKWARD + STEP, STEP + BACKWARD))
wrong("unscale_twice", "unscale_twice", "twice", (STEP, UNSCALE + UNSCALE + STEP))
wrong("unscale_after_step", "unscale_after_step", "after scaler.step", (STEP, STEP + UNSCALE))
wrong(
    "new_scaler_per_epoch",
    "scaler_recreated",
    "new GradScaler",
    (SCALER, ""),
    (EPOCHS, EPOCHS + "    " + SCALER),
)
wrong(
    "new_scaler_per_batch",
    "scaler_recreated",
    "new GradScaler",
    (SCALER, ""),
    (BATCHES, BATCHES + "        " + SCALER),
)
wrong(
    "divided_by_scale_again",
    "unscaled_twice",
    "divided by the loss scale twice",
    (
        STEP,
        UNSCALE
        + "            for p in model.parameters():\n                p.grad /= scaler.get_scale()\n"
        + STEP,
    ),
)
wrong(
    "scaled_by_hand_never_undone",
    "gradients_still_scaled",
    "without being unscaled",
    (BACKWARD, "            (loss * 1024).backward()\n"),
    (STEP + UPDATE, "            optimizer.step()\n"),
)
wrong(
    "scaled_by_hand_without_inf_check",
    "step_bypasses_scaler",
    "overflowed",
    (BACKWARD, "            (loss * 65536).backward()\n"),
    (
        STEP + UPDATE,
        "            for p in model.parameters():\n                p.grad /= 65536\n            optimizer.step()\n",
    ),
)
wrong(
    "scale_of_a_float",
    "scale_needs_a_tensor",
    "not a tensor",
    ("scaler.scale(loss)", "scaler.scale(loss.item())"),
)
wrong(
    "scale_what_backward_returns",
    "scale_needs_a_tensor",
    "not a tensor",
    (BACKWARD, "            scaler.scale(loss.backward())\n"),
)
wrong(
    "step_with_a_closure",
    "closure",
    "closure",
    ("scaler.step(optimizer)", "scaler.step(optimizer, closure=lambda: loss)"),
)

# --- gradients
wrong("no_zero_grad", "no_zero_grad", "zero", (ZERO, ""))
wrong(
    "zero_grad_once_per_epoch",
    "no_zero_grad",
    "zero",
    (ZERO, ""),
    (BATCHES, "        optimizer.zero_grad()\n" + BATCHES),
)
wrong(
    "zero_grad_before_step",
    "gradients_cleared",
    "between backward and the optimizer step",
    (STEP, ZERO + STEP),
)
wrong(
    "zero_grad_to_zero_before_step",
    "gradients_cleared",
    "zero_grad()",
    (STEP, "            optimizer.zero_grad(set_to_none=False)\n" + STEP),
)
wrong(
    "backward_twice",
    "backward_twice",
    "twice",
    (BACKWARD, BACKWARD.replace("()\n", "(retain_graph=True)\n") + BACKWARD),
)
wrong("backward_through_freed_graph", "backward_twice", "twice", (BACKWARD, BACKWARD + BACKWARD))
wrong(
    "forward_under_no_grad",
    "no_graph",
    "no_grad",
    (AUTOCAST, AUTOCAST.replace("with ", "with torch.no_grad(), ")),
)
wrong("loss_detached", "no_graph", "detach", ("scaler.scale(loss)", "scaler.scale(loss.detach())"))
wrong("clip_before_unscale", "clip_before_unscale", "still multiplied", (STEP, CLIP + STEP))
wrong("clip_then_unscale", "clip_before_unscale", "threshold", (STEP, CLIP + UNSCALE + STEP))
wrong(
    "nan_to_num",
    "overflow_hidden",
    "nan_to_num",
    (
        STEP,
        "            for p in model.parameters():\n                p.grad.nan_to_num_(0.0, 0.0, 0.0)\n"
        + STEP,
    ),
)
wrong(
    "clip_value_while_scaled",
    "clip_before_unscale",
    "value by value",
    (STEP, "            torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)\n" + STEP),
)
wrong(
    "clip_value_hides_overflow",
    "overflow_hidden",
    "clip_grad_value_",
    (STEP, "            torch.nn.utils.clip_grad_value_(model.parameters(), 60000.0)\n" + STEP),
)
wrong(
    "loss_divided", "loss_rescaled", "multiplied", ("scaler.scale(loss)", "scaler.scale(loss / len(loader))")
)
wrong(
    "gradients_clipped_hard",
    "gradients_changed",
    "does not ask for",
    (STEP, UNSCALE + CLIP.replace("1.0", "1e-9") + STEP),
)
wrong(
    "one_layer_frozen",
    "parameters_left_out",
    "did not change",
    (STEP, "            model.body.weight.grad.zero_()\n" + STEP),
)

# --- model, optimizer, data
wrong(
    "model_half",
    "half_parameters",
    "16-bit",
    (SCALER, SCALER + "    model.half()\n"),
    ("model(inputs)", "model(inputs.half())"),
)
wrong("model_to_dtype", "half_parameters", "16-bit", (SCALER, SCALER + "    model = model.to(dtype)\n"))
wrong(
    "half_without_autocast",
    "half_parameters",
    "parameters",
    (SCALER, SCALER + "    model.to(dtype)\n"),
    (AUTOCAST, "            if True:\n"),
    ("model(inputs)", "model(inputs.to(dtype))"),
)
wrong(
    "inputs_cast_without_autocast",
    "raised",
    "must have the same dtype",
    (AUTOCAST, "            if True:\n"),
    ("model(inputs)", "model(inputs.to(dtype))"),
)
wrong("evaluation_mode", "evaluation_mode", "evaluation mode", (EPOCHS, "    model.eval()\n" + EPOCHS))
wrong(
    "first_batch_only", "batches_skipped", "training passes were made", (TOTAL, TOTAL + "            break\n")
)
wrong("one_epoch_only", "batches_skipped", "5 training passes", ("range(epochs)", "range(1)"))
wrong(
    "iterator_made_once",
    "batches_skipped",
    "5 training passes",
    (
        EPOCHS,
        "    loader = itertools.cycle([]) if epochs == 0 else iter(list(loader))\n    batches = 5\n" + EPOCHS,
    ),
    (APPEND, "        history.append(total / batches)\n"),
    ("import torch\n", "import itertools\n\nimport torch\n"),
)
wrong("last_batch_dropped", "batches_skipped", "8 training passes", ("in loader:", "in list(loader)[:-1]:"))
wrong(
    "stops_at_nan",
    "stops_at_overflow",
    "overflow",
    (BACKWARD, "            if torch.isnan(loss):\n                return history\n" + BACKWARD),
)
wrong(
    "raises_at_nan",
    "stops_at_overflow",
    "AssertionError",
    (BACKWARD, "            assert torch.isfinite(loss), 'diverged'\n" + BACKWARD),
)
wrong(
    "inputs_changed_in_place", "inputs_changed", "in place", (ZERO, ZERO + "            inputs.div_(2.0)\n")
)
wrong("inputs_scaled", "inputs_altered", "other values", ("model(inputs)", "model(inputs / 2)"))
wrong("learning_rate_divided_by_scale", "optimizer_changed", "learning rate",
      (STEP, "            optimizer.param_groups[0]['lr'] *= 0.5\n" + STEP))  # fmt: skip


@TABLE.mistake("model_not_trained", "copy of the model")
def trains_a_copy(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    twin = copy.deepcopy(model)
    own = torch.optim.SGD(twin.parameters(), lr=optimizer.param_groups[0]["lr"])
    return TABLE.changed()(twin, loader, own, loss_fn, epochs, device_type=device_type, dtype=dtype)


@TABLE.mistake("optimizer_unused", "optimizer that was passed in")
def own_adam(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    own = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return TABLE.changed()(model, loader, own, loss_fn, epochs, device_type=device_type, dtype=dtype)


@TABLE.mistake("optimizer_unused", "never stepped")
def updates_by_hand(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            model.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer) if scaler.is_enabled() else None
            with torch.no_grad():
                if all(p.grad.isfinite().all() for p in model.parameters()):
                    for p in model.parameters():
                        p -= optimizer.param_groups[0]["lr"] * p.grad
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history


@TABLE.mistake("loss_fn_unused", "loss_fn")
def own_loss_function(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    own = nn.CrossEntropyLoss()
    return TABLE.changed()(model, loader, optimizer, own, epochs, device_type=device_type, dtype=dtype)


wrong("softmax_before_the_loss", "other_loss", "softmax", ("model(inputs)", "model(inputs).softmax(-1)"))
wrong(
    "targets_shuffled", "other_loss", "targets", ("model(inputs), targets", "model(inputs), targets.flip(0)")
)
wrong(
    "one_epoch_too_many",
    "batches_repeated",
    "15 training passes",
    ("range(epochs)", "range(epochs + 1)"),
    ("return history", "return history[:-1]"),
)
wrong(
    "each_batch_twice",
    "batches_repeated",
    "20 training passes",
    (BATCHES, "        for inputs, targets in [b for b in loader for _ in range(2)]:\n"),
)
wrong(
    "first_batch_again_and_again",
    "batches_repeated",
    "10 training passes were made where 2 epochs have 10 batches, and in an epoch some batches were used more",
    (BATCHES, "        for inputs, targets in [next(iter(loader)) for _ in loader]:\n"),
)
wrong(
    "errors_swallowed",
    "no_update",
    "without scaler.update()",
    (
        STEP + UPDATE,
        "            try:\n    " + STEP + "            except RuntimeError:\n                pass\n",
    ),
)
wrong(
    "zeroed_only_after_a_step",
    "no_zero_grad",
    "earlier step",
    (ZERO, ""),
    (
        UPDATE,
        "            before = scaler.get_scale()\n"
        + UPDATE
        + "            if scaler.get_scale() >= before:\n    "
        + ZERO,
    ),
)
wrong(
    "decay_before_unscale",
    "gradients_changed_before_unscale",
    "decayed",
    (
        STEP,
        "            for p in model.parameters():\n                p.grad.add_(p.detach(), alpha=0.1)\n"
        + STEP,
    ),
)
wrong(
    "gradients_doubled",
    "gradients_changed",
    "between backward and the optimizer step",
    (STEP, UNSCALE + "            for p in model.parameters():\n                p.grad *= 2\n" + STEP),
)
wrong(
    "saved_in_half_at_the_end",
    "half_parameters",
    "16-bit",
    ("    return history", "    model.half()\n    return history"),
)

wrong(
    "no_scaler_and_backward_inside",
    "backward_in_autocast",
    "inside the autocast",
    (SCALER, ""),
    (BACKWARD, "                loss.backward()\n"),
    (STEP, "            optimizer.step()\n"),
    (UPDATE, ""),
)
wrong(
    "step_unless_loss_is_nan",
    "update_without_step",
    "left scaler.step(optimizer) out",
    (STEP, "            if torch.isfinite(loss):\n    " + STEP),
)
wrong(
    "step_and_update_unless_loss_is_nan",
    "scale_never_lowered",
    "overflowed at scale",
    (STEP + UPDATE, "            if torch.isfinite(loss):\n    " + STEP + "    " + UPDATE),
)
wrong(
    "old_autocast",
    "raised",
    "device_type",
    ("torch.autocast(device_type, dtype=dtype)", 'torch.cuda.amp.autocast(device_type="cuda")'),
)
wrong(
    "learning_rate_changed_for_a_while",
    "weights_changed",
    "learning rate",
    (SCALER, SCALER + '    group = optimizer.param_groups[0]\n    group["lr"] /= 8\n'),
    ("    return history", '    group["lr"] *= 8\n    return history'),
)
wrong(
    "weights_decayed_by_hand",
    "weights_changed",
    "writes to the parameters",
    (
        UPDATE,
        UPDATE
        + "            with torch.no_grad():\n                for p in model.parameters():\n                    p.mul_(0.99)\n",
    ),
)
wrong(
    "weights_reset",
    "weights_reset",
    "before the first batch",
    (EPOCHS, "    torch.nn.init.zeros_(model.head.weight)\n" + EPOCHS),
)
wrong(
    "penalty_added",
    "other_gradient",
    "times their length",
    (LOSS, LOSS + "                loss = loss + 1e-3 * sum(p.square().sum() for p in model.parameters())\n"),
)
wrong(
    "loss_smoothed",
    "loss_rescaled",
    "0.9",
    (LOSS, LOSS + "                loss = 0.9 * loss + 0.1 * loss.detach()\n"),
)
wrong(
    "scale_too_large",
    "scale_too_large",
    "every batch overflowed",
    ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**60, "),
)
wrong(
    "no_step_in_bfloat16",
    "no_step",
    "torch.bfloat16",
    (STEP, "            if dtype == torch.float16:\n    " + STEP),
)
wrong(
    "two_steps_in_bfloat16",
    "double_step",
    "torch.bfloat16",
    (STEP, STEP + "            if dtype == torch.bfloat16:\n    " + STEP),
)

# --- what is returned
wrong("returns_none", "wrong_return_type", "None", ("    return history\n", ""))
wrong(
    "scaled_loss_logged",
    "history_scaled",
    "scaled loss",
    ("total += loss.item()", "total += scaler.scale(loss).item()"),
)
wrong("tensors_logged", "history_of_tensors", "graph", ("total += loss.item()", "total += loss"))
wrong(
    "detached_tensors_logged",
    "history_of_tensors",
    "floats were asked for",
    ("total += loss.item()", "total += loss.detach()"),
)
wrong("sum_logged", "history_not_mean", "sum", ("total / len(loader)", "total"))
wrong("last_loss_logged", "history_not_mean", "last batch", ("total / len(loader)", "loss.item()"))
wrong(
    "total_never_reset",
    "history_not_mean",
    "not reset",
    ("        total = 0.0\n", ""),
    (EPOCHS, "    total = 0.0\n" + EPOCHS),
)
wrong(
    "one_entry_per_batch",
    "history_length",
    "10 entries after training for 2 epochs",
    (TOTAL, "            history.append(loss.item())\n"),
    (APPEND, ""),
)
wrong("one_number", "wrong_return_type", "float", ("return history", "return history[-1]"))
wrong("yields", "wrong_return_type", "yield", (APPEND, APPEND + "        yield history\n"))
wrong(
    "strings", "wrong_return_type", "str", ("    return history", "    return [f'{h:.4f}' for h in history]")
)
wrong("too_short", "history_length", "1 entries", ("return history", "return history[-1:]"))

# --- conduct
wrong("raises", "raised", "ZeroDivisionError", (BACKWARD, "            1 / 0\n"))
wrong("misspelt_method", "raised", "AttributeError", ("scaler.update()", "scaler.updates()"))
wrong("other_signature", "signature", "device_type", ("*, device_type, dtype", "device='cpu'"))
wrong(
    "autocast_left_on",
    "leaves_state_behind",
    "autocast",
    ("    return history", "    torch.autocast(device_type).__enter__()\n    return history"),
)
wrong(
    "default_dtype_left_changed",
    "leaves_state_behind",
    "default dtype",
    ("    return history", "    torch.set_default_dtype(torch.float64)\n    return history"),
)
for name, setting, word in (
    ("matmul_precision_left_changed", "torch.set_float32_matmul_precision('high')", "fp32 products"),
    ("benchmark_left_on", "torch.backends.cudnn.benchmark = True", "cudnn.benchmark"),
    ("determinism_left_on", "torch.use_deterministic_algorithms(True)", "deterministic"),
):
    wrong(name, "leaves_state_behind", word, ("    return history", f"    {setting}\n    return history"))
wrong(
    "patches_torch",
    "patches_torch",
    "GradScaler.step",
    (SCALER, SCALER + "    torch.amp.GradScaler.step = lambda self, o: o.step()\n"),
)
wrong("exits", "ends_or_blocks_the_process", "exit()", (BACKWARD, "            exit()\n"))
TABLE.wrong["a_list"] = ("not_a_function", "list", [0.5, 0.25])
TABLE.wrong["nothing"] = ("not_a_function", "None", None)

# --- found by trying loops that other people wrote
ITERATION = BACKWARD + STEP + UPDATE
wrong(
    "autocast_set_for_everything",
    "one_big_autocast",
    "old weights",
    (
        EPOCHS,
        "    before = torch.get_autocast_dtype(device_type)\n"
        "    torch.set_autocast_enabled(device_type, True)\n    torch.set_autocast_dtype(device_type, dtype)\n"
        + EPOCHS,
    ),
    (AUTOCAST, "            if True:\n"),
    (
        "    return history",
        "    torch.set_autocast_enabled(device_type, False)\n"
        "    torch.set_autocast_dtype(device_type, before)\n    return history",
    ),
)
wrong(
    "autocast_inside_a_disabled_one",
    "one_big_autocast",
    "old weights",
    (EPOCHS, "    outer = torch.autocast(device_type, enabled=False)\n    outer.__enter__()\n" + EPOCHS),
    ("    return history", "    outer.__exit__(None, None, None)\n    return history"),
)
wrong(
    "trained_in_float32_as_well",
    "no_autocast",
    "10 of 20 forward passes",
    (AUTOCAST, "            loss_fn(model(inputs), targets).backward()\n" + AUTOCAST),
)
wrong(
    "outputs_scaled",
    "outputs_scaled",
    "not on the loss",
    ("loss_fn(model(inputs), targets)", "loss_fn(scaler.scale(model(inputs)), targets)"),
    (BACKWARD, "            loss.backward()\n"),
)
wrong("loss_clamped", "loss_cut_off", "zero", ("scale(loss)", "scale(loss.clamp(max=0.0))"))
wrong(
    "scaled_with_get_scale",
    "scaled_by_hand",
    "65536 by hand",
    ("scaler.scale(loss)", "(loss * scaler.get_scale())"),
)
wrong(
    "loss_made_to_require_gradients",
    "no_graph",
    "no_grad",
    (LOSS, "                with torch.no_grad():\n    " + LOSS + "                loss.requires_grad_()\n"),
)
wrong(
    "closure_by_position",
    "closure",
    "closure",
    (STEP, STEP.replace("optimizer)", "optimizer, lambda: None)")),
)
wrong(
    "losses_added_up",
    "losses_summed",
    "one backward pass together",
    (
        ZERO + AUTOCAST + LOSS + ITERATION,
        AUTOCAST + LOSS + "            kept = kept + [loss] if total else [loss]\n",
    ),
    (
        APPEND,
        "        optimizer.zero_grad()\n        scaler.scale(sum(kept)).backward()\n        scaler.step(optimizer)\n        scaler.update()\n"
        + APPEND,
    ),
)
wrong(
    "step_after_the_epoch",
    "steps_too_rarely",
    "of 10 batches, steps followed only 2",
    (BATCHES, "        optimizer.zero_grad()\n" + BATCHES),
    (ZERO, ""),
    (STEP + UPDATE, ""),
    (APPEND, "        scaler.step(optimizer)\n        scaler.update()\n" + APPEND),
)
wrong(
    "steps_every_other_batch",
    "steps_too_rarely",
    "of 10 batches, steps followed only 4",
    (BATCHES, "        for i, (inputs, targets) in enumerate(loader):\n"),
    (ZERO, "            if i % 2 == 0:\n    " + ZERO),
    (STEP + UPDATE, "            if i % 2:\n    " + STEP + "    " + UPDATE),
)
wrong(
    "backward_left_out_at_nan",
    "step_without_backward",
    "no backward pass in between",
    (BACKWARD, "            if loss.isfinite():\n    " + BACKWARD),
)
wrong(
    "update_although_nothing_was_checked",
    "update_without_step",
    "left scaler.step(optimizer) out",
    (
        ITERATION,
        "            if not loss.isfinite():\n    " + UPDATE + "                continue\n" + ITERATION,
    ),
)
wrong(
    "anomalies_raise",
    "leaves_state_behind",
    "anomaly detection",
    (EPOCHS, "    torch.autograd.set_detect_anomaly(True)\n" + EPOCHS),
)
wrong(
    "weights_in_half_from_the_start",
    "half_parameters",
    "16-bit",
    (EPOCHS, "    model.to(dtype)\n" + EPOCHS),
    (AUTOCAST, "            if True:\n"),
    (LOSS, "                loss = loss_fn(model(inputs.to(dtype)).float(), targets)\n"),
    (ITERATION, "            loss.backward()\n            optimizer.step()\n"),
)
wrong(
    "hooks_remove_nan",
    "overflow_hidden",
    "nan_to_num",
    (
        EPOCHS,
        "    for p in model.parameters():\n        p.register_hook(lambda g: g.nan_to_num(0.0, 0.0, 0.0))\n"
        + EPOCHS,
    ),
)
wrong(
    "scaler_state_loaded_every_epoch",
    "scale_reset",
    "back to 65536",
    (EPOCHS, "    fresh = scaler.state_dict()\n" + EPOCHS),
    (BATCHES, "        if fresh:\n            scaler.load_state_dict(fresh)\n" + BATCHES),
)
wrong("sum_over_samples_divided", "history_not_mean", "instead of", ("len(loader))", "len(loader.dataset))"))
wrong(
    "rounded_to_one_digit",
    "history_not_mean",
    "instead of",
    ("total / len(loader)", "round(total / len(loader), 1)"),
)
wrong(
    "body_frozen",
    "parameters_left_out",
    "frozen",
    (EPOCHS, "    model.body.requires_grad_(False)\n" + EPOCHS),
)

PENALTY = "torch.autograd.grad(scaler.scale(loss), list(model.parameters())"
wrong(
    "gradient_penalty",
    "other_gradient",
    "times their length",
    (
        BACKWARD,
        f"            norm = sum(g.norm() for g in {PENALTY}, create_graph=True)) / scaler.get_scale()\n"
        + BACKWARD.replace("loss", "loss + 0.01 * norm"),
    ),
)
wrong(
    "gradient_penalty_without_a_graph",
    "graph_used_twice",
    "the graph of the first",
    (BACKWARD, f"            {PENALTY})\n" + BACKWARD),
)

wrong(
    "cast_there_and_back",
    "weights_reset",
    "rounded",
    (EPOCHS, "    model.half().float()\n" + EPOCHS),
)
wrong(
    "total_reset_in_every_batch",
    "history_not_mean",
    "instead of",
    (ZERO, ZERO + "            total = 0.0\n"),
)

# --- right, if unusual
right("the_solution")
right("scaler_always_enabled", (", enabled=dtype == torch.float16", ""), notes=("scaler_with_bfloat16",))
right("zero_grad_at_the_end", (ZERO, ""), (UPDATE, UPDATE + ZERO))
right("zero_grad_after_forward", (ZERO, ""), (BACKWARD, ZERO + BACKWARD))
right("zero_grad_keeps_tensors", ("zero_grad()", "zero_grad(set_to_none=False)"))
right(
    "grads_set_to_none_by_hand",
    (ZERO, "            for p in model.parameters():\n                p.grad = None\n"),
)
right("model_zero_grad", ("optimizer.zero_grad()", "model.zero_grad()"))
right(
    "loss_outside_on_floats",
    (LOSS, "                out = model(inputs)\n            loss = loss_fn(out.float(), targets)\n"),
)
right(
    "explicit_unscale",
    (STEP, "            if scaler.is_enabled():\n                scaler.unscale_(optimizer)\n" + STEP),
)
right("harmless_clipping", (STEP, UNSCALE + CLIP + STEP))
right("no_weight_cache", ("dtype=dtype)", "dtype=dtype, cache_enabled=False)"))
right(
    "gradients_looked_at_beforehand",
    (
        BACKWARD,
        "            torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)\n" + BACKWARD,
    ),
)
right("small_init_scale", ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**9, "))
right("smallest_init_scale", ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**6, "))
right(
    "skips_the_backward_of_nan",
    (
        BACKWARD + STEP + UPDATE,
        "            if torch.isfinite(loss):\n    " + BACKWARD + "    " + STEP + "    " + UPDATE,
    ),
    notes=("batch_left_out",),
)
right("large_init_scale", ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**30, "))
right("eager_growth", ("GradScaler(device_type, ", "GradScaler(device_type, growth_interval=1, "))
right(
    "gentle_backoff",
    ("GradScaler(device_type, ", "GradScaler(device_type, backoff_factor=0.25, growth_factor=1.5, "),
)
right(
    "skips_nan_losses",
    (BACKWARD, "            if not torch.isfinite(loss):\n                continue\n" + BACKWARD),
    notes=("batch_left_out",),
)
right("inputs_cast_by_hand", ("model(inputs)", "model(inputs.to(dtype))"), notes=("inputs_cast",))
right(
    "moves_batches",
    (ZERO, ZERO + "            inputs, targets = inputs.to(device_type), targets.to(device_type)\n"),
)
right("rounded_history", ("total / len(loader)", "round(total / len(loader), 4)"))
right(
    "mean_over_samples", ("loss.item()", "loss.item() * len(targets)"), ("len(loader)", "len(loader.dataset)")
)
right("tuple_returned", ("return history", "return tuple(history)"), notes=("history_not_a_list",))
right("prints_progress", (APPEND, APPEND + "        print(history[-1])\n"))
right("train_mode_set", (EPOCHS, EPOCHS + "        model.train()\n"))
right(
    "accumulates_the_loss_on_the_device",
    ("total += loss.item()", "total += loss.detach()"),
    ("total / len(loader)", "(total / len(loader)).item()"),
)
right(
    "old_spellings",
    ("torch.amp.GradScaler(device_type, ", "torch.cuda.amp.GradScaler("),
    ("torch.autocast(device_type, ", "torch.cuda.amp.autocast("),
    notes=("deprecated_api", "deprecated_api", "hard_coded_device"),
)
right(
    "cuda_hard_coded",
    ("GradScaler(device_type, ", "GradScaler("),
    ("autocast(device_type, ", 'autocast("cuda", '),
    (ZERO, ZERO + '            inputs, targets = inputs.cuda(), targets.to("cuda", non_blocking=True)\n'),
    notes=("hard_coded_device",),
)


@TABLE.correct()
def steps_by_hand_over_an_iterator(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.GradScaler(device_type, enabled=dtype is torch.float16)
    means = np.zeros(epochs)
    for epoch in range(epochs):
        batches = iter(loader)
        for count in itertools.count(1):
            batch = next(batches, None)
            if batch is None:
                break
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.amp.autocast(device_type=device_type, dtype=dtype))
                loss = loss_fn(model(batch[0]), batch[1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            means[epoch] += (loss.item() - means[epoch]) / count
    return means.tolist()


@TABLE.correct()
def autocast_as_decorator(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    @torch.autocast(device_type, dtype=dtype)
    def loss_of(batch):
        return loss_fn(model(batch[0]), batch[1])

    def train_one(batch):
        loss = loss_of(batch)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return float(loss)

    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    return [sum(map(train_one, loader)) / len(loader) for _ in range(epochs)]


@TABLE.correct()
def scaler_subclass(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    class Counting(torch.amp.GradScaler):
        steps = 0

        def step(self, optimizer, *args, **kwargs):
            self.steps += 1
            return super().step(optimizer, *args, **kwargs)

        def __call__(self, loss):
            self.scale(loss).backward()
            self.step(optimizer)
            self.update()

    scaler = Counting(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            model.zero_grad(set_to_none=True)
            with torch.autocast(device_type, dtype=dtype):
                losses.append(loss_fn(model(x), y))
            scaler(losses[-1])
        history.append(torch.stack(losses).mean().item())
    return history


@TABLE.correct()
def gradients_from_autograd_grad(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        losses = []
        for x, y in loader:
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            parameters = list(model.parameters())
            for p, g in zip(parameters, torch.autograd.grad(scaler.scale(loss), parameters), strict=True):
                p.grad = g
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return history


@TABLE.correct()
def functional_call_and_outer_context(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    autocast = torch.autocast(device_type, dtype=dtype)  # one object, entered anew in every iteration
    history = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            with autocast:
                out = torch.func.functional_call(model, dict(model.named_parameters()), (x,))
                loss = loss_fn(out, y)
            torch.autograd.backward(scaler.scale(loss))
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def two_branches(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scaler = torch.amp.GradScaler(device_type) if dtype == torch.float16 else None
    history = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.correct("own_scaling")
def own_dynamic_scaling(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    scale = 2.0**15 if dtype == torch.float16 else 1.0
    history = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(x), y)
            (loss * scale).backward()
            grads = [p.grad for p in model.parameters()]
            if all(g.isfinite().all() for g in grads):
                for g in grads:
                    g.div_(scale)
                optimizer.step()
            else:
                scale /= 2
            total += loss.item()
        history.append(total / len(loader))
    return history


@TABLE.correct()
def forward_method_wrapped(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    inner = model.forward
    model.forward = torch.autocast(device_type, dtype=dtype)(inner)
    try:
        return TABLE.changed(("loss_fn(model(inputs), targets)", "loss_fn(model(inputs).float(), targets)"))(
            model, loader, optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype
        )
    finally:
        model.forward = inner


@TABLE.correct()
def validates_first(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    model.eval()
    with torch.inference_mode(), torch.autocast(device_type, dtype=dtype):
        for x, y in loader:
            loss_fn(model(x), y)
    model.train()
    return TABLE.changed()(model, loader, optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype)


right("loss_in_double", ("model(inputs)", "model(inputs).double()"))
right(
    "nan_kept_out_of_the_log",
    ("loss_fn(model(inputs), targets)", "torch.nan_to_num(loss_fn(model(inputs), targets))"),
)
TRIED = """import torch


def tried(loader, scaler):
    before = scaler.get_scale()
    yield from loader
    if scaler.get_scale() < before:
        yield from loader
"""
TRIED_AGAIN = (
    ZERO + FORWARD_AND_LOSS + BACKWARD + STEP + UPDATE,
    "            while True:\n                before = scaler.get_scale()\n"
    + textwrap.indent(ZERO + FORWARD_AND_LOSS + BACKWARD + STEP + UPDATE, "    ")
    + "                if scaler.get_scale() >= before or not loss.isfinite():\n                    break\n",
)
right("overflowed_batches_tried_again", TRIED_AGAIN)
right(
    "tried_again_from_a_large_scale", TRIED_AGAIN, ("(device_type, e", "(device_type, init_scale=2.0**30, e")
)
wrong(
    "epochs_of_overflows_trained_again",
    "batches_repeated",
    "20 training passes were made where 2 epochs have 10 batches",
    (BATCHES, BATCHES.replace("loader", "tried(loader, scaler)")),
    ("import torch\n", TRIED),
)
right(
    "gradients_looked_at_and_cleared",
    (ZERO, ""),
    (BACKWARD, BACKWARD.replace("()\n", "(retain_graph=True)\n") + ZERO + BACKWARD),
    notes=("backward_twice",),
)
right(
    "passes_to_warm_up",
    (
        EPOCHS,
        "    for inputs, targets in loader:\n        with torch.autocast(device_type, dtype=dtype):\n"
        "            loss = loss_fn(model(inputs), targets)\n        scaler.scale(loss).backward()\n"
        "        optimizer.zero_grad()\n" + EPOCHS,
    ),
)
right("compiled", (EPOCHS, "    model = torch.compile(model)\n" + EPOCHS))
right(
    "scaled_inside_autocast",
    (BACKWARD, "                scaled = scaler.scale(loss)\n            scaled.backward()\n"),
)
right("data_parallel", (EPOCHS, "    model = torch.nn.DataParallel(model)\n" + EPOCHS))
right(
    "scaler_state_put_back",
    (
        BATCHES,
        "        scaler.load_state_dict(scaler.state_dict()) if scaler.is_enabled() else None\n" + BATCHES,
    ),
)
right("graph_kept_for_a_while", (".backward()", ".backward(retain_graph=True)"))
right(
    "everything_by_keyword",
    ("scaler.scale(loss)", "scaler.scale(outputs=loss)"),
    ("scaler.step(optimizer)", "scaler.step(optimizer=optimizer)"),
)


@TABLE.correct()
def checkpointed(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    def recomputed(inputs):
        return checkpoint(model, inputs.clone().requires_grad_(), use_reentrant=True)

    return TABLE.changed()(
        recomputed, loader, optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype
    )


@TABLE.correct()
def batches_fetched_by_a_thread(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    class Prefetching:
        def __len__(self):
            return len(loader)

        def __iter__(self):
            waiting = queue.Queue(maxsize=2)

            def fetch():
                for batch in loader:
                    waiting.put(batch)
                waiting.put(None)

            threading.Thread(target=fetch, daemon=True).start()
            return iter(waiting.get, None)

    loop = TABLE.changed()
    return loop(model, Prefetching(), optimizer, loss_fn, epochs, device_type=device_type, dtype=dtype)


class Trainer:
    """A callable object that keeps its scaler in an attribute."""

    def __call__(self, model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
        self.scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
        return [self.epoch(model, loader, optimizer, loss_fn, device_type, dtype) for _ in range(epochs)]

    def epoch(self, model, loader, optimizer, loss_fn, device_type, dtype):
        return sum(self.step(model, optimizer, loss_fn, batch, device_type, dtype) for batch in loader) / len(
            loader
        )

    def step(self, model, optimizer, loss_fn, batch, device_type, dtype):
        with torch.autocast(device_type, dtype=dtype):
            loss = loss_fn(model(batch[0]), batch[1])
        optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss.item()


TABLE.right["a_callable_object"] = ((), Trainer())
TABLE.right["a_bound_method"] = ((), Trainer().__call__)
