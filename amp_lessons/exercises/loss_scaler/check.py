"""A loss scaler of one's own, checked step by step against PyTorch's."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from amp_lessons.audit.watching.device import device_type
from amp_lessons.audit.watching.spies.replacing import replaced
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.loss_scaler.mistakes import SCALE_HINT, mistake
from amp_lessons.exercises.loss_scaler.story import STORIES, Moment, NoGraphError, Story, live
from amp_lessons.exercises.report import conduct
from amp_lessons.exercises.report.results import Exercise, Finding, SideBySide, Verdict, failed, passed
from amp_lessons.exercises.sources import source_of


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


def _examine(attempt: Any) -> Verdict:
    finding = _not_a_class(attempt)
    if finding is not None:
        return Verdict((finding,))
    first = _examine_story(attempt, STORIES[0])
    if not first.findings[0].ok:
        return first
    second = _examine_story(attempt, STORIES[1])
    return first if second.findings[0].ok else second


def _examine_story(attempt: Any, story: Story) -> Verdict:
    borrowed: list[str] = []
    progress: list[str] = []
    with replaced(torch.amp.GradScaler, "__init__", lambda original: _noticed(original, borrowed)):
        outcome = sandbox.call(live, lambda: attempt(**story.settings), story.events, progress)
    finding = _conduct(outcome, borrowed, progress)
    if finding is not None:
        return Verdict((finding,))
    pytorchs = torch.amp.GradScaler(device_type(), **story.settings)
    right = live(lambda: pytorchs, story.events, [])
    timeline = _timeline(right, outcome.value)
    for count, theirs in enumerate(right):
        finding = mistake(outcome.value, count, theirs)
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
    return conduct.uncallable(attempt, "LossScaler", **STORIES[0].settings)


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
    if isinstance(outcome.error, NoGraphError):
        return failed(
            "scale",
            f"scale(loss) returned {outcome.error}, from which backward() cannot reach the parameters",
            SCALE_HINT,
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


_WHAT_HOLDS = (
    passed("scale", "the loss is multiplied by the scale"),
    passed(
        "unscale",
        "gradients are divided by it once, in unscale_ or in step, also over several parameter groups",
    ),
    passed(
        "step",
        "steps with inf, -inf or NaN gradients are skipped, and only those, also where clipping hid an inf",
    ),
    passed(
        "update",
        "the scale falls after an overflow and grows after growth_interval clean iterations in a row, "
        "also below 1 and beyond 2**32",
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
        "Write the class `LossScaler` with the methods `scale`, `unscale_`, `step`, `update` and "
        "`get_scale`, behaving as `torch.amp.GradScaler` does for one optimizer: unscale once, skip a "
        "step with inf or NaN, lower the scale after an overflow, raise it after `growth_interval` "
        "clean iterations in a row. Between two updates `unscale_` is called once at most; PyTorch's raises "
        "an error if it is called again, yours may do as it likes."
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
        "What must the scaler remember between `unscale_`, `step` and `update`? And which of it must be "
        "forgotten before the next iteration?",
        "Two things last for one iteration: whether gradients were unscaled, and whether one was not "
        "finite. One lasts longer: how many iterations in a row were clean. The gradients are in "
        "`optimizer.param_groups[…]['params'][…].grad`; some may be `None`.",
        "`update`: after an overflow `scale *= backoff_factor` and `count = 0`; otherwise `count += 1`, "
        "and when `count == growth_interval`, `scale *= growth_factor` and `count = 0`. In both cases "
        "forget the overflow and that gradients were unscaled.",
    ),
    explanation=(
        "Two flags live for one iteration and are cleared by `update`; the count of clean iterations "
        "lives until an overflow or a growth. `unscale_` notes the overflow, for clipping may hide it before "
        "`step`. The scale has no lower bound, as in PyTorch, and no upper one but float32's own: a scale "
        "that keeps falling is a sign of inf or NaN that no scale can cure, often from the forward pass. "
        "PyTorch keeps the overflow flag on the device and reads it once, in `step`: there Python waits for "
        "the device."
    ),
    answer=LossScaler,
    answer_source=source_of(LossScaler, imports=""),
    examine=_examine,
)
