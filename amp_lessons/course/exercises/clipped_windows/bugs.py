"""Mistakes that a loop with windows and clipping may have: each runs, raises nothing, and fits beside others.

A review draws some of them. Those with one cause stand for each other, and two of one cause are never drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOOP = Path(__file__).with_name("solution.py").read_text("utf-8")
"""The loop without a mistake."""


@dataclass(frozen=True)
class Bug:
    """One mistake: its ``cause`` as a reviewer says it, and the ``changes`` of the loop that make it.

    ``codes`` are those of the findings by which the check may name it; ``hides`` are bugs in whose company
    one of the two would not be named, or would raise. ``also_at`` are pieces of lines that the mistake left
    alone, and at which some would mend it.
    """

    id: str
    cause: str
    codes: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]
    hides: tuple[str, ...] = ()
    also_at: tuple[str, ...] = ()


def broken(bugs: Iterable[Bug]) -> str | None:
    """Return the loop with these mistakes; None where they do not fit into one loop."""
    source = LOOP
    for old, new in (change for bug in bugs for change in bug.changes):
        if source.count(old) != 1:
            return None
        source = source.replace(old, new)
    try:
        compile(source, "<review>", "exec")
    except SyntaxError:  # one has indented a line that the other has left behind
        return None
    return source


_SCALER = "    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"
_TOTAL = "        total = 0.0\n"
_AUTOCAST = "            with torch.autocast(device_type, dtype=dtype):\n"
_OUTPUTS = "                outputs = model(inputs)\n"
_LOSS = "                loss = loss_fn(outputs, targets)\n"
_UNSCALE = "                scaler.unscale_(optimizer)\n"
_CLIP = "                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
_STEP = "                scaler.step(optimizer)\n"
_UPDATE = "                scaler.update()\n"
_ZERO = "                optimizer.zero_grad()\n"

_IN_HALF = "the loss is in 16 bits: it loses digits, and scaled in fp16 it becomes inf"
_CLIPPED_SCALED = "gradients are clipped while they are still multiplied by the loss scale"
_NOT_MEAN = "what is logged for an epoch is a sum, not the mean of its losses"

BUGS = (
    Bug(
        "fixed_dtype",
        "autocast computes in a dtype of its own, whatever the caller asks for",
        ("wrong_autocast_dtype",),
        (("(device_type, dtype=dtype)", "(device_type, dtype=torch.bfloat16)"),),
    ),
    Bug(
        "scaler_of_an_epoch",
        "what the scaler has learnt is forgotten with every epoch",
        ("scaler_recreated",),
        ((_SCALER, ""), (_TOTAL, f"    {_SCALER}{_TOTAL}")),
    ),
    Bug(
        "scaler_off",
        "in fp16 the loss is not scaled: small gradients vanish",
        ("loss_not_scaled",),
        (("enabled=dtype == torch.float16", "enabled=dtype == torch.bfloat16"),),
    ),
    Bug(
        "model_outside",
        "the forward pass runs in fp32: nothing is gained",
        ("no_autocast",),
        ((_AUTOCAST + _OUTPUTS, f"            outputs = model(inputs)\n{_AUTOCAST}"),),
    ),
    Bug(
        "loss_rounded", _IN_HALF, ("loss_in_half",), (("(outputs, targets)", "(outputs, targets).to(dtype)"),)
    ),
    Bug("loss_outside", _IN_HALF, ("loss_outside_autocast",), ((_LOSS, _LOSS[4:]),)),
    Bug(
        "backward_inside",
        "the backward pass runs under autocast",
        ("backward_in_autocast",),
        (("            scaler.scale(", "                scaler.scale("),),
    ),
    Bug(
        "not_divided",
        "the gradients of a window are added up, not averaged",
        ("loss_not_divided",),
        (("scale(loss / accumulation_steps)", "scale(loss)"),),
        also_at=("loss = loss_fn(",),
    ),
    Bug(
        "graph_kept",
        "what is logged keeps the graph of every batch in memory",
        ("history_of_tensors",),
        (("total += loss.item()", "total += loss"),),
    ),
    Bug(
        "logged_divided",
        "what is logged is smaller than the losses, by a constant factor",
        ("history_not_mean",),
        (("total += loss.item()", "total += loss.item() / accumulation_steps"),),
    ),
    Bug(
        "sum_logged",
        _NOT_MEAN,
        ("history_not_mean",),
        (("total / len(loader)", "total"),),
        also_at=("total += ",),
    ),
    Bug(
        "total_never_reset",
        "what is logged for an epoch contains the epochs before it",
        ("history_not_mean",),
        ((_TOTAL, ""), ("    history = []\n", "    history = []\n    total = 0.0\n")),
    ),
    Bug(
        "rest_left",
        "batches at the end of an epoch make no update of their own",
        ("last_window_dropped",),
        ((" or i + 1 == len(loader)", ""),),
        also_at=("        history.append",),
    ),
    Bug(
        "counted_from_zero",
        "updates are made after the wrong batches: windows are shifted",
        ("step_within_window",),
        (("(i + 1) % accumulation_steps", "i % accumulation_steps"),),
        also_at=("enumerate(",),
    ),
    Bug("not_unscaled", _CLIPPED_SCALED, ("clip_before_unscale",), ((_UNSCALE, ""),)),
    Bug("clipped_first", _CLIPPED_SCALED, ("clip_before_unscale",), ((_UNSCALE + _CLIP, _CLIP + _UNSCALE),)),
    Bug(
        "clipped_by_value",
        "single gradients are limited instead of their norm",
        ("not_clipped", "clipped_piecewise", "overflow_hidden"),  # the last in the company of clipped_first
        (("clip_grad_norm_", "clip_grad_value_"),),
    ),
    Bug(
        "direct_step",
        "a step is made although gradients are inf or NaN",
        ("step_bypasses_scaler",),
        (("scaler.step(optimizer)", "optimizer.step()"),),
        hides=("not_unscaled",),  # without either the scaler has looked at nothing, and update raises
    ),
    Bug(
        "unscaled_every_batch",
        "the gradients of a window are divided by the loss scale several times",
        ("update_every_batch",),
        (
            (_UNSCALE, ""),
            (_UPDATE, ""),
            ("            if ", f"{_UNSCALE[4:]}            if "),
            ("        history.append", f"{_UPDATE[4:]}        history.append"),
        ),
        hides=("clipped_first",),  # unscaled before, they are clipped rightly
    ),
    Bug(
        "never_cleared",
        "the gradients of a window contain those of the windows before it",
        ("no_zero_grad",),
        ((_ZERO, ""),),
    ),
    Bug(
        "cleared_every_batch",
        "only the last batch of a window counts",
        ("window_cleared",),
        ((_ZERO, ""), (_AUTOCAST[:17], f"{_ZERO[4:]}{_AUTOCAST[:17]}")),
    ),
    Bug(
        "cleared_before_the_step",
        "the step finds no gradients",
        ("gradients_cleared",),
        ((_STEP + _UPDATE + _ZERO, _ZERO + _STEP + _UPDATE),),
        hides=(
            "counted_from_zero",
            "not_unscaled",
        ),  # no step moves anything; where it is unscaled, it raises
    ),
)
