"""A loss scaler of one's own, checked step by step against PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first, note, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, as_raised, described, function, said_of
from amp_lessons.course.exercises.loss_scaler import scaler_there
from amp_lessons.course.exercises.loss_scaler.scaler_there import LARGE, OVERFLOWS
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type
from amp_lessons.course.exercises.report.results import SideBySide

_THERE = scaler_there.__name__


@dataclass(frozen=True)
class Scenario:
    """What a scaler is made with, and one entry per iteration.

    An entry is ``"."`` for a clean iteration, ``"u"`` for a clean one with an explicit ``unscale_``, ``"c"``
    for one in which gradients are clipped after that, ``"large"`` for one in which two of them are ``LARGE``,
    or a kind of overflow. ``beside_another`` says that in each of them a second scaler is made, and goes
    through an overflow of its own.
    """

    settings: dict[str, Any]
    events: tuple[str, ...]
    beside_another: bool = False


# six clean iterations in a row grow twice, the last overflows bring the scale below 1
_UPS_AND_DOWNS = ". u . . inf . . nan u c . . . . -inf inf . . . last inf . clip ."
SCENARIOS = (
    Scenario(
        {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3},
        tuple(_UPS_AND_DOWNS.split()),
    ),
    # grows with every iteration, beyond 2**24, where some let it stop, and 2**32
    Scenario(
        {"init_scale": 16.0, "growth_factor": 16.0, "backoff_factor": 0.25, "growth_interval": 1},
        (".",) * 8,
    ),
    Scenario(
        {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2},
        (".", "u", ".", "clip", ".", "c", "u"),
        beside_another=True,
    ),
    Scenario(
        {"init_scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3},
        (".", "large"),  # the last: it takes the weights where nothing can be seen to move them
    ),
)


@dataclass(frozen=True)
class Iteration:
    """What could be seen in one iteration, as ``scaler_there.step_through`` tells, and its kind."""

    event: str
    loss: float
    loss_after: float
    scaled_loss: float
    unscaled: Tensor | None
    moved: Tensor
    left: Tensor
    true_gradient: Tensor
    replaced: bool
    scale_before: float
    scale_kept: Any
    scale_after_step: Any
    scale_after: Any
    steps: int

    @property
    def overflowed(self) -> bool:
        """Whether a gradient was inf or NaN."""
        return self.event in OVERFLOWS


# what an iteration with an overflow puts into a gradient, in words
_WORDS = {
    "inf": "inf",
    "-inf": "-inf",
    "nan": "nan",
    "last": "inf in another parameter group",
    "clip": "inf when unscale_ was called, and clipped afterwards",
}


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Take the scaler through overflows and clean iterations, beside PyTorch's."""
    made = _required_class(worker)
    remarks: list[Finding] = []
    timelines = [_require_the_same_as_pytorchs(made, scenario, remarks) for scenario in SCENARIOS]
    yield passed("scale", "the loss is multiplied by the scale")
    yield passed(
        "unscale",
        "gradients are divided by it once, in unscale_ or in step, also over several parameter groups",
    )
    yield passed(
        "step",
        "steps with inf, -inf or NaN gradients are skipped, and only those, also where clipping hid an inf",
    )
    yield passed(
        "update",
        "the scale falls after an overflow and grows after growth_interval clean iterations in a row, "
        "also below 1 and beyond 2**32",
    )
    yield from remarks
    yield from timelines[0]


def _required_class(worker: Worker) -> LearnersFunction:
    seen = worker.call(f"{_THERE}:no_class", Handle(0))
    if seen:
        reject(
            "not_a_class",
            f"the check was given {seen}, not the class LossScaler",
            "pass the class itself, without making an instance",
        )
    return function(worker, "LossScaler", **SCENARIOS[0].settings)


def _require_the_same_as_pytorchs(
    made: LearnersFunction, scenario: Scenario, remarks: list[Finding]
) -> tuple[SideBySide, ...]:
    """Return the scales of both, iteration by iteration; add what is to be remarked to ``remarks``."""
    right = _pytorchs(scenario)
    seen = _iterations(made, scenario, right)
    timeline = _timeline(right, seen)
    found = first(_all_mistakes(seen, right))
    if found is not None:
        if scenario.beside_another:
            found = _by_another(found)
        elif scenario is not SCENARIOS[0]:
            found = _by_an_earlier(made) or found
        require_none([found], *timeline)
    remarks += remarks_on(seen)
    return timeline


def _pytorchs(scenario: Scenario) -> list[Iteration]:
    scaler = torch.amp.GradScaler("cpu", **scenario.settings)
    seen = scaler_there.step_through(lambda: scaler, scenario.events, [])
    return [Iteration(event, **each) for event, each in zip(scenario.events, seen, strict=True)]


def _all_mistakes(seen: list[Iteration], right: list[Iteration]) -> Iterator[Finding]:
    for count, theirs in enumerate(right):
        yield from mistakes(seen, count, theirs)


def _by_an_earlier(made: LearnersFunction) -> Finding | None:
    """Find what is wrong where a scaler of the same settings was right, which was the first to be made."""
    right = _pytorchs(SCENARIOS[0])
    again = first(_all_mistakes(_iterations(made, SCENARIOS[0], right), right))
    if again is None:
        return None
    return failed(
        "state_shared", f"only once there has been another LossScaler, {again.message}", _KEEP_IN_SELF
    )


def _by_another(mistake: Finding) -> Finding:
    """Say of a mistake that is made beside another scaler only, that there must be something they share."""
    return failed(
        "state_shared",
        f"only while a second LossScaler is in use, {mistake.message}",
        _KEEP_IN_SELF,
    )


_KEEP_IN_SELF = (
    "keep in self what a scaler remembers, and make it in __init__: a GAN may have two scalers, and neither "
    "must know of the other's overflow"
)


def _iterations(made: LearnersFunction, scenario: Scenario, right: list[Iteration]) -> list[Iteration]:
    told, borrowed = made.called_by(
        f"{_THERE}:iterations",
        kwargs=scenario.settings,
        extra=(list(scenario.events), SCENARIOS[0].settings if scenario.beside_another else None),
    )
    if borrowed:
        reject(
            "uses_grad_scaler",
            "the class leaves its work to torch.amp.GradScaler",
            "write the five methods with plain tensor operations; that is the exercise",
        )
    if told["kind"] == "no_method":
        _reject_no_method(told["words"])
    if told["kind"] == "no_graph":
        words = told["words"]["scale"]
        raise Rejected(wrong_scaled_loss(f"{words}, from which backward() cannot reach the parameters"))
    if told["raised"] is not None:
        (doing,) = told["doing"]
        where = f"in or after {doing}, iteration {told['iteration']}"
        part = "" if doing.startswith("LossScaler(") else doing
        raise Rejected(said_of(as_raised(told["raised"]), where, part))
    return [
        Iteration(theirs.event, **{**each, "true_gradient": theirs.true_gradient})
        for theirs, each in zip(right, told["iterations"], strict=True)
    ]


def _reject_no_method(instead: dict[str, str]) -> NoReturn:
    for name, words in instead.items():
        if words:
            reject(
                "method_hidden",
                f"scaler.{name} is no method but {words}: what self.{name} was set to hides the "
                "method of the same name",
                f"give one of the two another name, as self._{name.strip('_')} for what is remembered",
            )
    reject("method_missing", f"the class has no method {', '.join(instead)}", "write all five methods")


def _timeline(right: list[Iteration], seen: list[Iteration]) -> tuple[SideBySide, ...]:
    yours = tuple(
        scale for scale in (float_in(iteration.scale_after) for iteration in seen) if scale is not None
    )
    if len(yours) < len(right):
        return ()
    expected = tuple(iteration.scale_after for iteration in right)
    return (SideBySide("scale after each update", "iteration", expected, yours),)


# --- what is wrong with a loss scaler, iteration by iteration beside PyTorch's


def mistakes(seen: list[Iteration], count: int, theirs: Iteration) -> Iterator[Finding]:
    """Look for what the learner's scaler did wrong in iteration ``count``, where PyTorch's did ``theirs``.

    ``seen`` are all iterations of the learner's scaler.
    """
    mine, past = seen[count], seen[:count]
    yield from _scaling(mine, theirs, past)
    if _finite_taken_for_inf(mine):
        return  # a remark says so
    in_step = first(_stepping(mine, theirs, past))
    if in_step is not None and in_step.code in _RELIES_ON_UNSCALE:
        for each in seen:
            yield from _unscaling(each)
    yield from filter(None, [in_step])
    yield from _updating(mine, theirs, past, ever=any(_has_grown(each) for each in seen))


# what step does wrong may come from unscale_: if that is wrong, say so instead
_RELIES_ON_UNSCALE = ("step_does_not_unscale", "wrong_step", "never_steps")


def _scaling(mine: Iteration, theirs: Iteration, past: list[Iteration]) -> Iterator[Finding]:
    scale = float_in(mine.scale_before)
    if scale is None:
        yield _no_number(mine.scale_before)
        return
    if not past and scale != theirs.scale_before:
        yield failed(
            "init_scale",
            f"the first scale is {scale:g}, not init_scale={theirs.scale_before:g}",
            "start from init_scale",
        )
    if not _near(mine.scaled_loss, theirs.scaled_loss):
        yield wrong_scaled_loss(
            f"{mine.scaled_loss:g} where the loss times the scale is {theirs.scaled_loss:g}"
        )
    yield from _changing_the_loss(mine, scale)
    yield from _unscaling(mine)
    kept = float_in(mine.scale_kept)
    if kept != scale:
        yield failed(
            "get_scale",
            f"get_scale() returned {scale:g} before the step, in something that update then changed to "
            f"{kept:g}: who compares the scale from before with the one after, to see whether a step was "
            "skipped, compares it with itself",
            "return a float, self._scale.item() say: a tensor that is multiplied in place is changed for "
            "everybody who has it",
        )


def wrong_scaled_loss(returned: str) -> Finding:
    """Say that ``scale`` returned something other than the loss times the scale."""
    return failed(
        "scale",
        f"scale(loss) returned {returned}",
        "return loss * scale: a tensor that still has the graph of the loss",
    )


def _no_number(value: Any) -> Finding:
    return failed("get_scale", f"get_scale() returned {described(value)}, not a float", "return the scale")


def _changing_the_loss(mine: Iteration, scale: float) -> Iterator[Finding]:
    """Find a loss that was changed in place: what is scaled is right, and what the caller logs is not."""
    if mine.loss_after == mine.loss:
        return
    what = f"scale(loss) changed the caller's own loss, from {mine.loss:g} to {mine.loss_after:g}"
    if _near(mine.loss_after, mine.loss * scale):
        why = f"a loss logged after it is multiplied by the scale, by {2**16:,} with the default init_scale"
    else:
        why = "a loss logged after it is wrong"
    yield failed(
        "changes_loss",
        f"{what}: {why}",
        "return a new tensor and leave the loss as it is: loss * scale, not loss *= scale",
    )


def _unscaling(mine: Iteration) -> Iterator[Finding]:
    if mine.unscaled is not None and not _same(mine.unscaled, mine.true_gradient):
        yield failed(
            "unscale",
            f"after unscale_ the gradients are {_listed(mine.unscaled)} instead of "
            f"{_listed(mine.true_gradient)}",
            "divide each parameter.grad of the optimizer's param_groups in place by the scale, once",
        )


def _stepping(mine: Iteration, theirs: Iteration, past: list[Iteration]) -> Iterator[Finding]:
    if mine.overflowed:
        yield from _stepping_on_overflow(mine)
    elif not _same(mine.moved, theirs.moved):
        yield _wrong_step(mine, theirs, past)
    elif not mine.steps:
        yield failed(
            "steps_by_hand",
            "the weights moved although optimizer.step() was not called: that fits this plain SGD only",
            "leave the update to the optimizer: call optimizer.step()",
        )
    elif not mine.left.any():
        yield failed(
            "step_clears_gradients",
            "after step there are no gradients any more; PyTorch's scaler leaves them, unscaled: who logs "
            "their norm after the step would see nothing",
            "leave zero_grad() to the training loop",
        )


def skipped_step_clears_gradients() -> Finding:
    """Remark on a step that was skipped and left no gradients."""
    return note(
        "step_clears_gradients",
        "after a step that was skipped there were no gradients any more: who looks for what overflowed "
        "finds nothing, where PyTorch's scaler leaves them",
        "leave zero_grad() to the training loop",
    )


def _stepping_on_overflow(mine: Iteration) -> Iterator[Finding]:
    if not mine.steps and not mine.moved.any():
        return
    what = f"the optimizer stepped although a gradient was {_WORDS[mine.event]}"
    if mine.event == "clip":
        yield failed(
            "overflow_clipped_away",
            f"{what}: a step was made with what clipping had left of inf",
            "look for inf and NaN in unscale_, and remember it until update: step may see clipped gradients",
        )
    if not mine.moved.isfinite().all():
        then = "the weights are inf or NaN from now on"
    elif mine.moved.any():
        then = f"the weights moved by {_listed(mine.moved)}"
    else:
        then = "the weights stayed, as this is plain SGD; momentum or weight decay may move them"
    yield failed(
        "steps_on_overflow",
        f"{what}: {then}",
        "look for inf, -inf and NaN in every gradient of every group (isfinite() finds all three). If there "
        "is one, do not call optimizer.step()",
    )


def _wrong_step(mine: Iteration, theirs: Iteration, past: list[Iteration]) -> Finding:
    """Name the mistake behind a step of finite gradients that is not the right one."""
    if not mine.moved.any():
        return _no_step(past)
    if _same(mine.moved, theirs.moved * theirs.scale_before):
        return _not_unscaled(past)
    if _same(mine.moved, theirs.moved / theirs.scale_before):
        return failed(
            "unscales_twice",
            "the gradients were divided by the scale twice"
            + (": step unscaled again after unscale_" if mine.event in "uc" else ""),
            "remember that unscale_ was called, and do not unscale again in step",
        )
    if mine.event == "c" and _same(mine.moved, mine.true_gradient):
        return failed(
            "clipping_undone",
            "after unscale_ the gradients were clipped, and step applied them as they were before that",
            "step has to use what stands in .grad when it is called: unscale_ is called to change it",
        )
    if _same(mine.moved, 2 * theirs.moved):
        return catalogue.steps.double_step(hint="call optimizer.step() once")
    return failed(
        "wrong_step",
        f"the weights moved by {_listed(mine.moved)} instead of {_listed(theirs.moved)}",
        "unscale the gradients, then call optimizer.step()",
    )


def _no_step(past: list[Iteration]) -> Finding:
    if past and past[-1].overflowed:
        return failed(
            "never_recovers",
            "the step after an overflow was skipped too: the overflow of the last iteration is still "
            "remembered",
            "forget the overflow in update()",
        )
    return failed(
        "never_steps",
        "the weights did not change although all gradients are finite",
        "call optimizer.step()",
    )


def _not_unscaled(past: list[Iteration]) -> Finding:
    if any(iteration.event == "u" for iteration in past):
        return failed(
            "stays_unscaled",
            "step applied scaled gradients: it still believed that unscale_ had been called, in an earlier "
            "iteration",
            "forget in update() that the gradients were unscaled",
        )
    return failed(
        "step_does_not_unscale",
        "step applied gradients that are still multiplied by the scale",
        "call unscale_ in step, unless it has been called since the last update",
    )


def _has_grown(mine: Iteration) -> bool:
    before, after = float_in(mine.scale_before), float_in(mine.scale_after)
    return before is not None and after is not None and after > before


def _updating(mine: Iteration, theirs: Iteration, past: list[Iteration], ever: bool) -> Iterator[Finding]:
    """Compare the scales after update; ``ever`` says whether the learner's grew in any iteration."""
    seen = float_in(mine.scale_after)
    if seen is None:
        yield _no_number(mine.scale_after)
        return
    if _near(seen, theirs.scale_after):
        return
    before = float_in(mine.scale_before)
    moved = f"the scale went from {before:g} to {seen:g}"
    if mine.overflowed:
        yield failed(
            "backoff",
            f"{moved} after an overflow; backoff_factor makes it {theirs.scale_after:g}",
            "remember until update that there was an overflow, and multiply the scale by backoff_factor then"
            if seen == before
            else "after an overflow multiply the scale by backoff_factor, with no lower bound",
        )
    if past and past[-1].scale_after > past[-1].scale_before and seen < theirs.scale_after:
        yield catalogue.steps.capped(
            f"{moved}; growth_factor makes it {theirs.scale_after:g}, and smaller scales did grow by it"
        )
    if theirs.scale_after != theirs.scale_before:
        yield _wrong_growth(moved, seen == mine.scale_before, theirs, ever)
    yield _grown_early(moved, _overflowed_since_growth(past))


def _overflowed_since_growth(past: list[Iteration]) -> bool:
    """Whether the last thing that starts the count of clean iterations again was an overflow."""
    return next((each.overflowed for each in reversed(past) if each.overflowed or _has_grown(each)), False)


def _wrong_growth(moved: str, stayed: bool, theirs: Iteration, ever: bool) -> Finding:
    if stayed:
        never = (
            ", nor did it grow later: update waits for another number than the argument growth_interval, or "
            "raises nothing"
        )
        return failed(
            "growth_late",
            f"{moved} although growth_interval iterations in a row were clean; it should be "
            f"{theirs.scale_after:g}{'' if ever else never}",
            "count clean iterations; when there are growth_interval of them, grow and count from zero again",
        )
    return failed(
        "growth_factor",
        f"{moved}; growth_factor makes it {theirs.scale_after:g}",
        "multiply by growth_factor",
    )


def _grown_early(moved: str, overflowed_before: bool) -> Finding:
    if overflowed_before:
        return failed(
            "counter_not_reset",
            f"{moved} too early: clean iterations from before the overflow were counted",
            "an overflow starts the count of clean iterations again from zero",
        )
    return failed(
        "growth_early",
        f"{moved} before growth_interval iterations in a row were clean",
        "count each iteration once; grow only when the count of clean ones reaches growth_interval, then "
        "count from zero again",
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-7)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-5)


def _listed(values: Tensor) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values.tolist()) + "]"


# --- what a right loss scaler does otherwise than PyTorch's, and what that costs


def _finite_taken_for_inf(mine: Iteration) -> bool:
    return mine.event == "large" and not mine.steps and not mine.moved.any()


def remarks_on(seen: Sequence[Iteration]) -> Iterator[Finding]:
    """Remark on the iterations of a scaler in which nothing is wrong."""
    for each in seen:
        yield from remark_on_type(each.scale_after, float)
    if any(each.replaced for each in seen):
        yield note(
            "gradients_replaced",
            "unscale_ put other tensors into .grad instead of dividing those that were there: whoever holds "
            "the old ones, as DDP's gradient_as_bucket_view does, has them still multiplied by the scale",
            "divide in place: parameter.grad /= scale",
        )
    if any(map(_finite_taken_for_inf, seen)):
        yield note(
            "finite_taken_for_inf",
            f"a step was skipped in which two gradients were {LARGE:.0e}: that is finite in fp32, and inf is "
            "their sum only, or the square of one",
            "ask each number, by isfinite().all(): a sum or a norm of finite numbers may be inf",
        )
    if any(each.overflowed and not each.left.any() for each in seen):
        yield skipped_step_clears_gradients()
    if any(each.scale_after_step != each.scale_before for each in seen):
        yield note(
            "scale_changed_in_step",
            "the scale changed in step, before update was called: with a second optimizer, whose loss was "
            "scaled by the old scale, step would divide its gradients by the new one",
            "note the overflow in step, and change the scale in update",
        )
