"""A loss scaler of one's own, checked step by step against PyTorch's."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.bench import device_type
from amp_lessons.exercises.results import Exercise, Finding, SideBySide, Verdict, failed, passed
from amp_lessons.exercises.sources import source_of
from amp_lessons.exercises.spies import replaced


class LossScaler:
    """Scale the loss, unscale the gradients, skip steps that overflowed, adapt the scale."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):  # type: ignore[no-untyped-def]
        self._scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._clean_steps = 0
        self._unscaled = False
        self._overflow = False

    def scale(self, loss):  # type: ignore[no-untyped-def]
        """Return the loss multiplied by the scale."""
        return loss * self._scale

    def unscale_(self, optimizer):  # type: ignore[no-untyped-def]
        """Divide the optimizer's gradients by the scale, in place, and note whether one is inf or NaN."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad /= self._scale
                    self._overflow |= not parameter.grad.isfinite().all().item()
        self._unscaled = True

    def step(self, optimizer):  # type: ignore[no-untyped-def]
        """Unscale, unless that has been done, and step unless a gradient is inf or NaN."""
        if not self._unscaled:
            self.unscale_(optimizer)
        if not self._overflow:
            optimizer.step()

    def update(self):  # type: ignore[no-untyped-def]
        """Lower the scale after an overflow; raise it after growth_interval steps in a row without one."""
        if self._overflow:
            self._scale *= self._backoff_factor
            self._clean_steps = 0
        else:
            self._clean_steps += 1
            if self._clean_steps == self._growth_interval:
                self._scale *= self._growth_factor
                self._clean_steps = 0
        self._unscaled = self._overflow = False

    def get_scale(self):  # type: ignore[no-untyped-def]
        """Return the scale as a float."""
        return self._scale


_METHODS = ("scale", "unscale_", "step", "update", "get_scale")
_SETTINGS = {"init_scale": 64.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
_BAD = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# one letter per iteration: . clean, u clean with an explicit unscale_, then kinds of overflow
_STORY = (
    ".",
    "u",
    ".",
    ".",
    "inf",
    ".",
    ".",
    "nan",
    "u",
    ".",
    ".",
    ".",
    ".",
    "-inf",
    "inf",
    ".",
    ".",
    ".",
    "last",
    ".",
)


@dataclass(frozen=True)
class Moment:
    """What could be seen in one iteration, from the scaled loss to the scale after update."""

    event: str
    scaled_loss: float
    unscaled: Tensor | None
    moved: Tensor
    true_gradient: Tensor
    scale_before: float
    scale_after: Any


def _live(make: Callable[[], Any], progress: list[str]) -> list[Moment]:
    """Take a scaler through the story. ``progress`` says at any time what is being done."""
    device = device_type()
    progress.append("LossScaler(init_scale, growth_factor, backoff_factor, growth_interval)")
    scaler = make()
    first = torch.nn.Parameter(torch.tensor([1.0, -2.0], device=device))
    second = torch.nn.Parameter(torch.tensor([[0.5]], device=device))
    unused = torch.nn.Parameter(torch.zeros(2, device=device))
    optimizer = torch.optim.SGD([{"params": [first, unused]}, {"params": [second]}], lr=1.0)
    moments = []
    for count, event in enumerate(_STORY):
        optimizer.zero_grad()
        factors = torch.tensor([0.25, -0.5], device=device) * (count + 1)
        loss = (first * factors).sum() + second.sum() * 0.125
        progress.append("get_scale")
        scale_before = scaler.get_scale()
        progress.append("scale")
        scaled = scaler.scale(loss)
        scaled.backward()
        _spoil(first if event in _BAD else second, _BAD.get(event, math.inf if event == "last" else 0.0))
        unscaled = None
        if event == "u":
            progress.append("unscale_")
            scaler.unscale_(optimizer)
            unscaled = _joined_gradient(first, second)
        before = _joined(first, second)
        progress.append("step")
        scaler.step(optimizer)
        progress.append("update")
        scaler.update()
        progress.append("get_scale")
        true_gradient = torch.cat([factors.cpu(), torch.tensor([0.125])])
        moved = before - _joined(first, second)
        moments.append(
            Moment(
                event,
                float(scaled.detach()),
                unscaled,
                moved,
                true_gradient,
                scale_before,
                scaler.get_scale(),
            )
        )
    return moments


def _spoil(parameter: torch.nn.Parameter, amount: float) -> None:
    if parameter.grad is not None and amount != 0.0:
        parameter.grad.view(-1)[0] = amount


def _joined(*tensors: Tensor) -> Tensor:
    return torch.cat([t.detach().reshape(-1).cpu() for t in tensors]).clone()


def _joined_gradient(*parameters: torch.nn.Parameter) -> Tensor:
    return _joined(*(p.grad for p in parameters if p.grad is not None))


def _examine(attempt: Any) -> Verdict:
    finding = _not_a_class(attempt)
    if finding is not None:
        return Verdict((finding,))
    borrowed: list[str] = []
    progress: list[str] = []
    with replaced(torch.amp.GradScaler, "__init__", lambda original: _noticed(original, borrowed)):
        outcome = sandbox.call(_live, lambda: attempt(**_SETTINGS), progress)
    finding = _conduct(outcome, borrowed, progress)
    if finding is not None:
        return Verdict((finding,))
    pytorchs = torch.amp.GradScaler(device_type(), **_SETTINGS)  # type: ignore[arg-type]
    right = _live(lambda: pytorchs, [])
    timeline = _timeline(right, outcome.value)
    for count, theirs in enumerate(right):
        finding = _mistake(outcome.value, count, theirs)
        if finding is not None:
            return Verdict((finding,), timeline)
    return Verdict(_WHAT_HOLDS, timeline)


def _not_a_class(attempt: Any) -> Finding | None:
    if not inspect.isclass(attempt):
        return failed(
            "not_a_class",
            f"the check was given {conduct.describe(attempt)}, not the class LossScaler",
            "pass the class itself, without making an instance",
        )
    missing = [name for name in _METHODS if not callable(getattr(attempt, name, None))]
    if missing:
        return failed(
            "method_missing", f"the class has no method {', '.join(missing)}", "write all five methods"
        )
    return conduct.uncallable(attempt, "LossScaler", **_SETTINGS)


def _noticed(original: Any, borrowed: list[str]) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        borrowed.append(type(self).__name__)
        original(self, *args, **kwargs)

    return __init__


def _conduct(outcome: sandbox.Outcome, borrowed: list[str], progress: list[str]) -> Finding | None:
    finding = conduct.not_attempted(outcome)
    if finding is not None and len(progress) > 1:
        return conduct.unwritten_part(outcome, progress[-1])
    if finding is not None or (finding := conduct.misconduct(outcome)) is not None:
        return finding
    if borrowed:
        return failed(
            "uses_grad_scaler",
            "the class leaves its work to torch.amp.GradScaler",
            "write the five methods with plain tensor operations; that is the exercise",
        )
    if outcome.error is not None:
        return conduct.raised(
            outcome, f"in or after {progress[-1]}, iteration {progress.count('update') + 1}"
        )
    return None


def _timeline(right: list[Moment], seen: list[Moment]) -> tuple[SideBySide, ...]:
    try:
        yours = tuple(float(moment.scale_after) for moment in seen)
    except (TypeError, ValueError):
        return ()
    return (SideBySide("scale after each update", "iteration", tuple(m.scale_after for m in right), yours),)


def _mistake(moments: list[Moment], count: int, theirs: Moment) -> Finding | None:
    mine, past = moments[count], moments[:count]
    finding = _scaling(mine, theirs, past) or _stepping(mine, theirs, past)
    if finding is not None and finding.code == "step_does_not_unscale":
        # step relies on unscale_: if that is wrong, say so instead
        finding = next((f for f in map(_unscaling, moments) if f is not None), finding)
    return finding or _updating(mine, theirs, past)


def _scaling(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    try:
        scale = float(mine.scale_before)
    except (TypeError, ValueError):
        return failed(
            "get_scale",
            f"get_scale() returned {conduct.describe(mine.scale_before)}, not a float",
            "return the scale",
        )
    if not past and scale != theirs.scale_before:
        return failed(
            "init_scale",
            f"the first scale is {scale:g}, not init_scale={theirs.scale_before:g}",
            "start from init_scale",
        )
    if not _near(mine.scaled_loss, theirs.scaled_loss):
        return failed(
            "scale",
            f"scale(loss) returned {mine.scaled_loss:g} where the loss times the scale is "
            f"{theirs.scaled_loss:g}",
            "return loss * scale, a tensor that still has its graph",
        )
    return _unscaling(mine)


def _unscaling(mine: Moment) -> Finding | None:
    if mine.unscaled is None or _same(mine.unscaled, mine.true_gradient):
        return None
    return failed(
        "unscale",
        f"after unscale_ the gradients are {_listed(mine.unscaled)} instead of {_listed(mine.true_gradient)}",
        "divide each parameter.grad of the optimizer's param_groups in place by the scale, once",
    )


def _stepping(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    if _same(mine.moved, theirs.moved):
        return None
    if mine.event in (*_BAD, "last"):
        what = {"last": "inf in another parameter group"}.get(mine.event, mine.event)
        return failed(
            "steps_on_overflow",
            f"the optimizer stepped although a gradient was {what}: the weights are inf or NaN from now on",
            "look for inf, -inf and NaN in every gradient of every group; isfinite() finds all three",
        )
    if not mine.moved.any():
        if past and past[-1].event in (*_BAD, "last"):
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
    if _same(mine.moved, theirs.moved * theirs.scale_before):
        return _not_unscaled(mine, past)
    if _same(mine.moved, theirs.moved / theirs.scale_before):
        return failed(
            "unscales_twice",
            "the gradients were divided by the scale twice"
            + (": step unscaled again after unscale_" if mine.event == "u" else ""),
            "remember that unscale_ was called, and do not unscale again in step",
        )
    if _same(mine.moved, 2 * theirs.moved):
        return failed("double_step", "the optimizer stepped twice", "call optimizer.step() once")
    return failed(
        "wrong_step",
        f"the weights moved by {_listed(mine.moved)} instead of {_listed(theirs.moved)}",
        "unscale the gradients, then call optimizer.step()",
    )


def _not_unscaled(mine: Moment, past: list[Moment]) -> Finding:
    if any(moment.event == "u" for moment in past):
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


def _updating(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    try:
        seen = float(mine.scale_after)
    except (TypeError, ValueError):
        return failed(
            "get_scale", f"get_scale() returned {conduct.describe(mine.scale_after)}", "return the scale"
        )
    if _near(seen, theirs.scale_after):
        return None
    moved = f"the scale went from {mine.scale_before:g} to {seen:g}"
    if mine.event in (*_BAD, "last"):
        return failed(
            "backoff",
            f"{moved} after an overflow; backoff_factor makes it {theirs.scale_after:g}",
            "after an overflow multiply the scale by backoff_factor, with no lower bound",
        )
    if seen == mine.scale_before:
        return failed(
            "growth_late",
            f"{moved} although growth_interval iterations in a row were clean; it should be "
            f"{theirs.scale_after:g}",
            "count clean iterations; when there are growth_interval of them, grow and count from zero again",
        )
    if theirs.scale_after != theirs.scale_before:
        return failed(
            "growth_factor",
            f"{moved}; growth_factor makes it {theirs.scale_after:g}",
            "multiply by growth_factor",
        )
    if any(moment.event in (*_BAD, "last") for moment in past):
        return failed(
            "counter_not_reset",
            f"{moved} too early: clean iterations from before the overflow were counted",
            "an overflow starts the count of clean iterations again from zero",
        )
    return failed(
        "growth_early",
        f"{moved} before growth_interval={_SETTINGS['growth_interval']} iterations in a row were clean",
        "grow only when the count of clean iterations reaches growth_interval, then count from zero again",
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-7)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-5)


def _listed(values: Tensor) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values.tolist()) + "]"


_WHAT_HOLDS = (
    passed("scale", "the loss is multiplied by the scale"),
    passed(
        "unscale",
        "gradients are divided by it once, in unscale_ or in step, also over several parameter groups",
    ),
    passed("step", "steps with inf, -inf or NaN gradients are skipped, and only those"),
    passed(
        "update",
        "the scale falls after an overflow and grows after growth_interval clean iterations in a row",
    ),
)

EXERCISE = Exercise(
    id="loss_scaler",
    title="Your own loss scaler",
    lesson="03",
    difficulty=4,
    minutes=25,
    names=("LossScaler",),
    task=(
        "Write the class LossScaler with the methods scale, unscale_, step, update and get_scale, behaving "
        "as torch.amp.GradScaler does for one optimizer: unscale once, skip a step with inf or NaN, lower "
        "the scale after an overflow, raise it after growth_interval clean iterations in a row."
    ),
    stub='''class LossScaler:
    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000):
        raise NotImplementedError

    def scale(self, loss):
        """Return the loss multiplied by the scale."""
        raise NotImplementedError

    def unscale_(self, optimizer):
        """Divide the optimizer's gradients by the scale, in place, and note whether one is inf or NaN."""
        raise NotImplementedError

    def step(self, optimizer):
        """Unscale, unless that has been done, and step unless a gradient is inf or NaN."""
        raise NotImplementedError

    def update(self):
        """Lower the scale after an overflow; raise it after growth_interval clean iterations in a row."""
        raise NotImplementedError

    def get_scale(self):
        """Return the scale as a float."""
        raise NotImplementedError
''',
    hints=(
        "What must the scaler remember between unscale_, step and update? And which of it must be "
        "forgotten before the next iteration?",
        "Three things last for one iteration: whether gradients were unscaled, whether one was not finite. "
        "One lasts longer: how many iterations in a row were clean. The gradients are in "
        "optimizer.param_groups[…]['params'][…].grad; some may be None.",
        "update: after an overflow scale *= backoff_factor and count = 0; otherwise count += 1, and when "
        "count == growth_interval, scale *= growth_factor and count = 0. In both cases forget the overflow "
        "and that gradients were unscaled.",
    ),
    explanation=(
        "Two flags live for one iteration and are cleared by update; the count of clean iterations lives "
        "until an overflow or a growth. There is no lower bound for the scale, as in PyTorch: a scale that "
        "keeps falling is a sign of an overflow in the forward pass, which no scale can cure. PyTorch "
        "keeps the flags on the device to avoid waiting for it."
    ),
    answer=LossScaler,
    answer_source=source_of(LossScaler, imports=""),
    examine=_examine,
)
