"""A loss scaler as in lesson 03, and whether another goes on with its state as it would itself."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, reject, run
from amp_lessons.exercises.loss_scaler import check as of_a_scaler
from amp_lessons.exercises.loss_scaler.scenarios import step_through
from amp_lessons.exercises.report.common_findings import float_in
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.text.describing import describe

_SETTINGS = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
_OTHERS = {"init_scale": 2.0, "growth_factor": 8.0, "backoff_factor": 0.5, "growth_interval": 5}
_BEFORE = (".", "inf", ".", ".")  # two clean ones in a row: the next makes the scale grow
_AFTER = (".", ".", ".", ".", "inf", ".", ".", ".")


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Take the scaler through overflows beside PyTorch's, then save it, load it elsewhere, and go on."""
    yield from of_a_scaler.check(attempt)
    _require_state(attempt.value)
    yield passed("resumed", "another scaler goes on with the state as the first would")


def _require_state(made: type) -> None:
    """Compare a scaler that goes on with one that was loaded from its state."""
    first = run(lambda: made(**_SETTINGS))
    _scales(first, _BEFORE)
    state = run(lambda: first.state_dict(), part="state_dict", about="in state_dict")
    loaded = _through_a_file(state)
    wanted = _scales(first, _AFTER)
    _require_a_copy(state, loaded)
    saved_at = _scales(run(lambda: made(**_SETTINGS)), _BEFORE)[-1]
    for settings in (_SETTINGS, _OTHERS):
        other = run(lambda settings=settings: made(**settings))
        _scales(other, ("inf", "."))
        run(
            lambda other=other: other.load_state_dict(loaded),
            part="load_state_dict",
            about="in load_state_dict",
        )
        _require_scale(run(other.get_scale), saved_at)
        _require_same(_scales(other, _AFTER), wanted, settings == _SETTINGS)


def _scales(scaler: Any, events: Sequence[str]) -> list[float | None]:
    """Return the scale after each iteration."""
    seen = run(step_through, lambda: scaler, events, [], about="in an iteration after or before loading")
    return [float_in(each.scale_after) for each in seen]


def _through_a_file(state: Any) -> Any:
    if not isinstance(state, dict) or not state:
        reject("state_not_plain", f"state_dict returned {describe(state)}", "return a dict of numbers")
    file = io.BytesIO()
    try:
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)
    except Exception as error:  # whatever pickling the learner's object raises
        reject(
            "state_not_plain",
            f"the state does not come back from torch.save and torch.load: {describe(str(error))}",
            "put plain numbers into it, not the scaler or an optimizer",
        )


def _require_a_copy(state: dict[Any, Any], saved: dict[Any, Any]) -> None:
    changed = [name for name, value in saved.items() if state.get(name) != value]
    if changed:
        reject(
            "state_goes_on",
            f"when the scaler went on, {changed[0]!r} changed in the state that it had given before",
            "return a new dict, with copies of what the scaler remembers",
        )


def _require_scale(seen: Any, saved_at: float | None) -> None:
    if float_in(seen) != saved_at:
        reject(
            "scale_not_resumed",
            f"after loading, the scale is {describe(seen)}, and it was {saved_at:g} when the state was saved",
            "put the scale into the state, and take it from there",
        )


def _require_same(seen: Sequence[float | None], wanted: Sequence[float | None], same_settings: bool) -> None:
    """Name what did not come back: with the same settings it is the count, else it is the settings."""
    if list(seen) == list(wanted):
        return
    at = next(i for i, (one, other) in enumerate(zip(seen, wanted, strict=True)) if one != other)
    said = f"in iteration {at + 1} after loading the scale is {seen[at]:g}, the first one's {wanted[at]:g}"
    if same_settings:
        reject(
            "count_not_resumed",
            f"{said}: two clean iterations before the state was saved were not counted",
            "the count of clean iterations belongs to the state",
        )
    reject(
        "settings_not_resumed",
        f"{said}: it follows the arguments that the other scaler was made with",
        "both factors and the interval belong to the state",
    )
