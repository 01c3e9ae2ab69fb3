"""A loss scaler of one's own, beside PyTorch's: the first number that differs decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, first, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.loss_scaler import scaler_there
from amp_lessons.course.exercises.loss_scaler.scaler_there import LARGE, OVERFLOWS, Iteration, Run
from amp_lessons.course.exercises.report.common_findings import remark_on_type

_SETTINGS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


def _scenarios(draw: torch.Generator) -> Iterator[tuple[list[str], tuple[float, ...], bool]]:
    """Yield events, the settings, and whether another scaler is in use meanwhile: from simple to hard."""

    def one_of(*options: Any) -> Any:
        return options[int(torch.randint(len(options), (1,), generator=draw))]

    usual = (8.0, 4.0, 0.25, 3)
    # six clean iterations in a row grow twice, the last overflows bring the scale below 1
    ups_and_downs = ". u . . inf . . nan u c . . . . -inf inf . . . last inf . clip ."
    yield ["u"] * 3, usual, False
    yield ups_and_downs.split(), usual, False
    yield ups_and_downs.split(), usual, True
    yield ["."] * 8, (16.0, 16.0, 0.25, 1), False  # beyond 2**24, where some let it stop, and 2**32
    drawn = one_of(5.0, 24.0, 96.0), one_of(1.5, 3.0), one_of(0.3, 0.75), one_of(1, 2)
    yield [one_of(*".....uc", *OVERFLOWS) for _ in range(30)], drawn, False
    yield [".", "large"], (1.0, 2.0, 0.5, 3), False


_EVENTS = {
    ".": "",
    "u": ", with a call of unscale_,",
    "c": ", with gradients clipped after unscale_,",
    "large": f", with gradients of {LARGE:.0e},",
    "last": ", with inf in a gradient of another parameter group,",
    "clip": ", with inf that is clipped after unscale_,",
}
"""What happens in an iteration, as a message says it; what is not here is put into a gradient."""


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Take the scaler through overflows and clean iterations, beside PyTorch's."""
    bed.require_class(worker, "LossScaler")
    made = bed.function(worker, "LossScaler", **dict.fromkeys(_SETTINGS, 1))
    compared = [_as_pytorchs(made, *scenario) for scenario in _scenarios(draw)]
    yield passed("scale", "the loss is multiplied by the scale")
    yield passed("unscale", "gradients of all groups are divided by it once, in unscale_ or in step")
    said = "steps with inf, -inf or NaN are skipped, and no others, also where clipping hid inf"
    yield passed("step", said)
    yield passed("update", "the scale falls and grows when it should, also below 1 and beyond 2**32")
    for _, remarks in compared:
        yield from remarks
    yield compared[1][0]


def _as_pytorchs(
    made: bed.LearnersFunction, events: list[str], numbers: tuple[float, ...], beside: bool
) -> tuple[bed.SideBySide, list[Finding]]:
    """Return the scales of both, and remarks; reject what differs."""
    settings: dict[str, Any] = dict(zip(_SETTINGS, numbers, strict=True))
    right = Run(lambda: torch.amp.GradScaler("cpu", **settings)).through(events)
    seen = _seen(made, settings, events, dict.fromkeys(_SETTINGS, 2) if beside else {})
    scales = (tuple(each.scale_after for each in one) for one in (right, seen))
    timeline = bed.SideBySide("scale after each update", "iteration", *scales)
    found = first(_mistakes(seen, right))
    if found is not None and beside:  # alone it was right
        found = _mistake("state_shared", f"while a second LossScaler is in use, {found.message}")
    if found is not None:
        raise bed.Rejected(found, timeline)
    return timeline, list(_remarks(seen))


def _seen(made: bed.LearnersFunction, settings: dict[str, Any], *extra: Any) -> list[Iteration]:
    there = f"{scaler_there.__name__}:iterations"
    told, _ = made.called_by(there, kwargs=settings, extra=extra)
    if told["stopped"]:
        raise bed.Rejected(_mistake(*told["stopped"]))
    if told["raised"] is not None:
        doing, count = told["doing"]
        where = f"in {doing or '__init__'}, iteration {count}"
        raise bed.Rejected(bed.said_of(bed.as_raised(told["raised"]), where, doing))
    return [Iteration(**each) for each in told["iterations"]]


# --- what is wrong with a loss scaler, iteration by iteration beside PyTorch's

_COMPARED = {
    "scale_before": ("init_scale", "get_scale() is {0} instead of {1} at the beginning"),
    "scaled_loss": ("scale", "scale(loss) is {0} instead of {1}"),
    "loss": ("changes_loss", "scale(loss) changed the caller's own loss from {1} to {0}"),
    "unscaled": ("unscale", "the gradients are {0} after unscale_ instead of {1}"),
    "moved": ("wrong_step", "the weights moved by {0} instead of {1}"),
    "steps": ("steps_by_hand", "optimizer.step() was called {0} times instead of {1}"),
    "left": ("step_clears_gradients", "step left the gradients {0}, and PyTorch's scaler leaves them {1}"),
    "scale_kept": ("get_scale", "what get_scale() had returned, {1}, is {0} after update"),
    "scale_after": ("update", "get_scale() went from {2} to {0} instead of {1}"),
}
"""What is compared, in the order of causes: the code where it differs, and what is seen then."""

_HINTS = {
    "uses_grad_scaler": "write the five methods with plain tensor operations; that is the exercise",
    "method_missing": "write all five methods, and give what is remembered a name of its own, as self._scale",
    "state_shared": "keep in self what a scaler remembers, and make it in __init__: a GAN may have two",
    "init_scale": "start from init_scale",
    "scale": "return loss * scale: a tensor that still has the graph of the loss",
    "changes_loss": "return a new tensor, loss * scale: a loss logged afterwards would be another",
    "get_scale": "return a float, self._scale.item() say, and no tensor that update changes in place",
    "unscale": "divide each parameter.grad of the optimizer's param_groups in place by the scale, once",
    "wrong_step": "step divides by the scale what unscale_ has not divided since the last update, once, and "
    "calls optimizer.step() on what stands in .grad then, unless inf or NaN is there; update forgets both",
    "steps_on_overflow": "look for inf, -inf and NaN in every gradient, by isfinite(); with one, no step, "
    "nor one on zeros in its place",
    "overflow_clipped_away": "look for inf and NaN in unscale_, which is before clipping, and remember it",
    "steps_by_hand": "leave the update to optimizer.step(): one that is made by hand fits plain SGD only",
    "step_clears_gradients": "leave zero_grad() to the training loop: it may log their norm after step",
    "update": "an overflow multiplies the scale by backoff_factor, and growth_interval clean iterations in a "
    "row by growth_factor, with no bound; each of the two begins the count of clean ones again",
}


def _mistake(code: str, seen: str) -> Finding:
    return failed(code, seen, _HINTS[code])


def _mistakes(seen: list[Iteration], right: list[Iteration]) -> Iterator[Finding]:
    """Look for what the learner's scaler did otherwise than PyTorch's."""
    for count, (mine, theirs) in enumerate(zip(seen, right, strict=True), 1):
        event = _EVENTS.get(theirs.event, f", with {theirs.event} in a gradient,")
        for name, (code, words) in _COMPARED.items():
            ours, its = getattr(theirs, name), getattr(mine, name)
            if name == "moved" and _takes_large_for_inf(mine):
                return  # a remark says so
            if _same(its, ours) or (name == "left" and mine.event in OVERFLOWS):
                continue
            what = words.format(*map(_listed, (its, ours, mine.scale_before)))
            if name in ("moved", "steps") and theirs.event in OVERFLOWS:
                code = "overflow_clipped_away" if theirs.event == "clip" else "steps_on_overflow"
            elif name == "moved":
                what += _why_moved(its, ours, theirs.scale_before)
            yield _mistake(code, f"in iteration {count}{event} {what}")


def _why_moved(its: Tensor, ours: Tensor, scale: float) -> str:
    suspects = {
        "no step was made": 0 * ours,
        "by gradients that are still scaled": ours * scale,
        "by gradients that were unscaled twice": ours / scale,
    }
    return next((f": {why}" for why, each in suspects.items() if _same(its, each)), "")


def _same(a: Any, b: Any) -> bool:
    """Whether two numbers or tensors are as good as equal."""
    if a is None or b is None:
        return a is b
    return torch.allclose(torch.as_tensor(a).double(), torch.as_tensor(b).double(), rtol=1e-5, atol=0)


def _listed(values: Any) -> str:
    many = isinstance(values, Tensor)
    return "[" + ", ".join(f"{v:.4g}" for v in values.tolist()) + "]" if many else f"{values:g}"


# --- what a right loss scaler does otherwise than PyTorch's, and what that costs


def _takes_large_for_inf(mine: Iteration) -> bool:
    return mine.event == "large" and not mine.steps and not mine.moved.any()


def _remarks(seen: list[Iteration]) -> Iterator[Finding]:
    """Remark on the iterations of a scaler in which nothing is wrong."""
    for each in seen:
        yield from remark_on_type(each.returned, float)
        if _takes_large_for_inf(each):
            said = f"no step was made at gradients of {LARGE:.0e}, whose sum alone is inf"
            hint = "ask each number, isfinite().all(): a sum or norm of finite numbers may be inf"
            yield note("finite_taken_for_inf", said, hint)
