"""A loss scaler as in lesson 03, and whether another goes on with its state as it would itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from amp_lessons.audit.findings import passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.loss_scaler import check as of_a_scaler
from amp_lessons.course.exercises.report.common_findings import float_in

_SETTINGS = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
_OTHERS = {"init_scale": 2.0, "growth_factor": 8.0, "backoff_factor": 0.5, "growth_interval": 5}
_BEFORE = (".", "inf", ".", ".")  # two clean ones in a row: the next makes the scale grow
_AFTER = (".", ".", ".", ".", "inf", ".", ".", ".")
_SAVED = "amp_lessons.course.exercises.resumable_scaler.state_there:Saved"
_SCALES = "amp_lessons.course.exercises.loss_scaler.scaler_there:scales"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Take the scaler through overflows beside PyTorch's, then save it, load it elsewhere, and go on."""
    yield from of_a_scaler.judge(worker, draw)
    _require_state(worker)
    yield passed("resumed", "another scaler goes on with the state as the first would")


def _require_state(worker: bed.Worker) -> None:
    """Compare a scaler that goes on with one that was loaded from its state."""
    scaler = _made(worker, _SETTINGS)
    saved_at = _scales(worker, scaler, _BEFORE)[-1]
    saved = bed.asked(worker, _SAVED, scaler, keep=True, part="state_dict", about="in state_dict")
    if refused := str(worker.call(saved, method="why_refused")):
        hint = "return a dict of plain numbers, not the scaler or an optimizer"
        bed.reject("state_not_plain", refused, hint)
    wanted = _scales(worker, scaler, _AFTER)
    if changed := worker.call(saved, method="changed"):
        said = f"when the scaler went on, {changed[0]} changed in the state that it had given before"
        bed.reject("state_goes_on", said, "return a new dict, with copies of what the scaler remembers")
    for settings in (_SETTINGS, _OTHERS):
        other = _made(worker, settings)
        _scales(worker, other, ("inf", "."))
        part = "load_state_dict"
        bed.asked(worker, saved, other, method="hand_on", part=part, about=f"in {part}")
        loaded = bed.asked(worker, other, method="get_scale")
        if float_in(loaded) != saved_at:
            seen = bed.described(loaded)
            said = f"after loading, the scale is {seen}, and it was {saved_at} when it was saved"
            hint = (
                "put the scale into the state, and take a copy of it from there: others load that state, too"
            )
            bed.reject("scale_not_resumed", said, hint)
        made = "with the same arguments" if settings == _SETTINGS else "with other arguments"
        for number, pair in enumerate(zip(_scales(worker, other, _AFTER), wanted, strict=True), 1):
            if pair[0] != pair[1]:
                said = (
                    f"in iteration {number} after loading into a scaler that was made {made}, the scale is "
                )
                said += f"{pair[0]}, and it is {pair[1]} in the scaler that the state is of"
                hint = "scale, both factors, the interval and the count of clean iterations are the state"
                bed.reject("not_resumed", said, hint)


def _made(worker: bed.Worker, settings: dict[str, float]) -> bed.Handle:
    """Make a scaler there."""
    made: dict[str, Any] = {"keep": True, **settings}
    handle: bed.Handle = bed.asked(worker, bed.Handle(0), **made)
    return handle


def _scales(worker: bed.Worker, scaler: bed.Handle, events: Sequence[str]) -> list[float | None]:
    """Return the scale after each iteration."""
    about = "in an iteration after or before loading"
    return [float_in(each) for each in bed.asked(worker, _SCALES, scaler, list(events), about=about)]
