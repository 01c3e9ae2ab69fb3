"""Find where two runs part: the first module whose difference neither its inputs nor its format explain.

A module that is given what already differs returns what differs. So each tensor is held against what it was
computed from: with the gain ``G`` by which that module passes differences on, and the unit roundoff ``u`` of
the coarser of the two runs' formats, rounding explains ``4·(u·(1 + G) + G·d)``, where ``d`` is the difference
of its sources. ``u·(1 + G)`` is what a backward stable computation may do; 4 is for long sums, and for
sources that differ in an unlucky direction. ``G`` is measured, where a nudged run is there, as the floor of
what came out over the floor of what went in, and is at least 1; without one it is taken to be 8, and in steps
after those that were nudged to be what these have shown, if that is more. Where the sources differ, twice the
floor is explained as well, and more of a handful of numbers; three times as much in the backward pass, where
gradients jump when another number is the largest of its window.

What is lost below the range of fp16 is no rounding, and is not explained: that is what loss scaling is for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_lessons._base.arguments import require
from amp_lessons._base.render import InSections, Section
from amp_lessons._base.text.words import counted
from amp_lessons.audit.comparing import report
from amp_lessons.audit.comparing.pairing import Apart, Event, Events, Pairs, Phase, furthest
from amp_lessons.audit.comparing.recorder import Run
from amp_lessons.audit.comparing.recording import Call, Recording, coarsest, unit_roundoff
from amp_lessons.audit.comparing.whole_runs import Movement, differences_before, movement

_HEADROOM = 4.0
_NAMED = 4
_OTHERS = 0.01  # apart, where nothing was rounded yet: other numbers were drawn
_TINY = 1e-300
_UNMEASURED_GAIN = 8.0
_OF_FLOOR = 2.0
_BACKWARD = 3.0  # the largest of a window, or the side of a threshold, may be another: gradients jump then
_OF_FEW = 30.0  # one number may well be nudged by a tenth of what rounding does to it; many are not


@dataclass(frozen=True)
class Parting:
    """A place where two runs differ.

    ``module`` is the one that computed it ("" for the code around all modules), ``what`` the tensor in words,
    ``phase`` is "weights" (before the step), "input" (what the outermost module is given), "forward",
    "backward" (gradients of what modules return) or "gradient" (of weights). ``difference`` is relative,
    ``inherited`` that of what it was computed from, ``noise_floor`` what a nudged run makes of it, None
    without one; ``explained_up_to`` is how much inputs and format explain; ``formats`` are those of the runs.
    """

    module: str
    phase: Phase
    step: int
    what: str
    difference: float
    inherited: float
    noise_floor: float | None
    explained_up_to: float
    formats: tuple[str, str]

    @property
    def explained(self) -> bool:
        """Whether the inputs and the format explain the difference."""
        return self.difference <= self.explained_up_to

    @property
    def over_explained(self) -> float:
        """The difference over what is explained."""
        if self.explained_up_to > 0:
            return 1.0 if math.isinf(self.explained_up_to) else self.difference / self.explained_up_to
        return math.inf if self.difference > 0 else 0.0


@dataclass(frozen=True)
class OfModule:
    """One module at the first step that was recorded: how far apart it is, forward and backward.

    ``own`` is the largest difference over what is explained: above 1, this module is worse than its format.
    """

    module: str
    kind: str
    formats: tuple[str, str]
    difference: float
    noise_floor: float | None
    explained_up_to: float | None
    gradient_difference: float | None
    gradient_noise_floor: float | None
    own: float


@dataclass(frozen=True)
class OfStep:
    """One step: how far apart outputs, gradients and weights are, all weights together, and their floors."""

    step: int
    output: Apart | None
    gradient: Apart | None
    weights: Apart | None


@dataclass(frozen=True, repr=False)
class Comparison(InSections):
    """Where two runs part.

    ``first`` is the first place that is worse than its format explains, None where there is none; ``worse``
    are all such places of their own, those that only inherit left out. ``parted`` is the first place that
    differs at all. ``by_module`` is in the order of the forward pass, ``by_step`` in that of the steps.
    ``before`` says what is otherwise before anything is computed: versions, settings, weights, batches;
    ``moved`` how far the weights went, None where that cannot be compared.
    ``obstacle`` says why nothing can be said of two runs, and is "" otherwise.
    """

    html_class = "amp-comparison"

    a: Recording
    b: Recording
    nudged: Recording | None
    first: Parting | None
    parted: Parting | None
    worse: tuple[Parting, ...]
    by_module: dict[str, OfModule]
    by_step: tuple[OfStep, ...]
    parameters: tuple[Parting, ...]
    notes: tuple[str, ...]
    obstacle: str = ""
    before: tuple[str, ...] = ()
    moved: Movement | None = None

    @property
    def as_explained(self) -> bool:
        """Whether the runs could be compared, nothing is worse than its format explains, and both move."""
        stands = self.moved is not None and self.moved.apart
        return not self.obstacle and self.first is None and not stands

    def as_json(self) -> str:
        """Return what was found, without the recordings, as JSON."""
        return report.as_json(self)

    def opening(self) -> Iterator[str]:
        """Yield the verdict."""
        yield report.headline(self)

    def all_sections(self) -> Iterator[Section]:
        """Yield all that there is to say."""
        return report.sections_of(self)


Compared = Recording | Run | str | Path


def compare(a: Compared, b: Compared, nudged: Compared | None = None) -> Comparison:
    """Find where two recorded runs part; each is a ``Recording``, what ``recording`` gives, or a file.

    ``nudged`` is the first run once more, recorded with ``nudged_by=audit.Nudge.between(a, b)``: it shows
    what rounding makes of the run, module by module. Without it this is estimated. Raises TypeError for
    anything else, and OSError or ValueError for a file that cannot be read.
    """
    one, other, third = _read(a), _read(b), None if nudged is None else _read(nudged)
    return _Judge(one, other, third).comparison()


def _read(run: Any) -> Recording:
    if isinstance(run, Run):
        return run.recording
    if isinstance(run, (str, Path)):
        return Recording.load(run)
    return require(run, Recording, "a run", "a recording, what audit.recording gives, or a file of one")


class _Judge:
    """Holds every event of two runs against what explains it."""

    def __init__(self, a: Recording, b: Recording, nudged: Recording | None) -> None:
        self._a, self._b, self._nudged = a, b, nudged
        self._pairs = Pairs(a, b, nudged)
        self._events = Events(self._pairs)
        self._steps = sorted({event.step for event in self._events.all})
        self._gains: dict[tuple[str, str, str], float] = {}  # the largest that was measured, by what it is of
        self._partings = tuple(self._parting(each) for each in self._events.all)

    def comparison(self) -> Comparison:
        """Return all that there is to say."""
        worse = tuple(each for each in self._partings if not each.explained)
        weights = [each for each in self._partings if each.phase == "weights" and each.difference > 0]
        first = [each for each in weights if each.step == weights[0].step]
        return Comparison(
            a=self._a,
            b=self._b,
            nudged=self._nudged,
            first=next(iter(worse), None),
            parted=next((each for each in self._partings if each.difference > 0), None),
            worse=worse,
            by_module=self._by_module(),
            by_step=tuple(self._of_step(step) for step in self._steps),
            parameters=tuple(sorted(first, key=lambda each: -each.difference)),
            notes=tuple(self._notes()),
            obstacle=self._obstacle(),
            before=tuple(differences_before(self._a, self._b)),
            moved=movement(self._a, self._b),
        )

    def _parting(self, event: Event) -> Parting:
        return Parting(
            module=event.module,
            phase=event.phase,
            step=event.step,
            what=event.what,
            difference=event.apart.difference,
            inherited=0.0 if event.source is None else event.source.difference,
            noise_floor=event.apart.floor,
            explained_up_to=_explained_up_to(event, self._steps[0], self._gain(event)),
            formats=event.formats,
        )

    def _gain(self, event: Event) -> float:
        """Return by how much a difference may grow; steps that were not nudged take it from others."""
        of, measured = (event.phase, event.module, event.what), _measured_gain(event)
        before = self._gains.get(of, 0.0)
        if measured is None:
            return max(before, _UNMEASURED_GAIN)
        self._gains[of] = max(before, measured)
        return measured

    def _by_module(self) -> dict[str, OfModule]:
        """Return the modules of the first step, in the order in which they returned."""
        first = self._steps[:1]
        calls: dict[str, list[Call]] = {}
        for call in self._a.calls:
            if call.step in first and any(self._pairs.has(each) for each in call.outputs.values()):
                calls.setdefault(call.module, []).append(call)
        own = {name: [p for p in self._partings if p.module == name and p.step in first] for name in calls}
        found = [self._of_module(calls[name], own[name]) for name in calls]

        def returned(call: Call) -> tuple[int, int]:  # of two that return the same, the inner one is first
            return max(self._a.values[each].order for each in call.outputs.values()), -call.order

        return {
            each.module: each
            for each in sorted(found, key=lambda each: max(map(returned, calls[each.module])))
        }

    def _of_module(self, calls: list[Call], own: list[Parting]) -> OfModule:
        values = [each for call in calls for each in call.outputs.values()]
        forward = self._furthest(values)
        backward = self._furthest([self._a.values[each].gradient for each in values])
        made = [each for each in own if each.phase == "forward"]
        matches = (self._events.in_b(call) for call in calls)
        in_b = coarsest(match.format for match in matches if match is not None)
        return OfModule(
            module=calls[0].module,
            kind=calls[0].kind,
            formats=(coarsest(each.format for each in calls), in_b),
            difference=forward.difference if forward is not None else 0.0,
            noise_floor=forward.floor if forward is not None else None,
            explained_up_to=max((each.explained_up_to for each in made), default=None),
            gradient_difference=backward.difference if backward is not None else None,
            gradient_noise_floor=backward.floor if backward is not None else None,
            own=max((each.over_explained for each in own), default=0.0),
        )

    def _furthest(self, values: Iterable[int]) -> Apart | None:
        return furthest(self._pairs.apart(each) for each in values if self._pairs.has(each))

    def _of_step(self, step: int) -> OfStep:
        outermost = [call for call in self._a.calls if call.step == step and call.parent < 0]
        weights = [weight for weight in self._a.weights if weight.step == step]
        return OfStep(
            step=step,
            output=self._furthest(value for call in outermost for value in call.outputs.values()),
            gradient=self._pairs.together([weight.gradient for weight in weights]),
            weights=self._pairs.together([weight.value for weight in weights]),
        )

    def _obstacle(self) -> str:
        for name, run in (("the first", self._a), ("the second", self._b)):
            if not run.calls and not run.weights:
                return f"of {name} run nothing was recorded: no module was called, and no optimizer stepped"
        if not self._events.all:
            return "the two runs have no module and no weight in common"
        for each in self._partings:
            drawn = each.step == 0 and each.phase in ("input", "weights")  # before anything is computed
            if drawn and (each.noise_floor or 0) > _OTHERS:
                what = f"weights `{each.what}`" if each.phase == "weights" else f"batches (`{each.module}`)"
                return (
                    f"the first script does not repeat itself: run again, its {what} differ by "
                    f"{each.noise_floor:.2g}; seed what it draws at random, and its data loader"
                )
        return ""

    def _notes(self) -> Iterator[str]:
        yield from _only_in(self._a, self._b, "first")
        yield from _only_in(self._b, self._a, "second")
        if self._a.steps != self._b.steps:
            yield f"the first run has {len(self._a.steps)} recorded steps, the second {len(self._b.steps)}"
        if self._a.skipped != self._b.skipped:
            yield (
                f"a scaler skipped {counted(len(self._a.skipped), 'step')} of the first run and "
                f"{counted(len(self._b.skipped), 'step')} of the second"
            )
        for name, mine in self._a.made_of.items():
            its = self._b.made_of.get(name)
            if its is not None and mine != its:
                yield f"`{name}` is made otherwise: `{mine}` in the first run, `{its}` in the second"
        for which, run in (("first", self._a), ("second", self._b)):
            yield from (f"not seen of the {which} run: {each}" for each in run.not_seen)
            if run.ended:
                yield f"the {which} run ended by {run.ended}"


def _only_in(one: Recording, other: Recording, which: str) -> Iterator[str]:
    theirs = {call.module for call in other.calls}
    only = [name for name in dict.fromkeys(call.module for call in one.calls) if name not in theirs]
    if only and theirs:
        yield f"only the {which} run has {report.some([f'`{name}`' for name in only], _NAMED)}"


def _explained_up_to(event: Event, first_step: int, gain: float) -> float:
    """Return how far apart an event may be by what it was computed from, and by its format."""
    inherited = 0.0 if event.source is None else event.source.difference
    if _cannot_be_judged(event, first_step, inherited):
        return math.inf
    u = unit_roundoff(event.format)
    explained = _HEADROOM * (u * (1 + gain) + gain * inherited)
    if inherited == 0:
        return explained
    if event.apart.floor is not None:
        explained = max(explained, event.apart.floor * (_OF_FLOOR + _OF_FEW / max(event.count, 1)))
    return explained * (_BACKWARD if event.phase in ("backward", "gradient") else 1.0)


def _cannot_be_judged(event: Event, first_step: int, inherited: float) -> bool:
    """Whether nobody can say what becomes of a difference here.

    An optimizer may make much of a little, as Adam's first step does of a gradient near 0; in a backward pass
    what is left may be next to nothing, such as the gradient of a bias before a normalization.
    """
    if event.phase == "weights" and event.step > first_step:
        return event.source is None or inherited > 0
    return event.phase in ("backward", "gradient") and inherited > 0 and event.apart.floor is None


def _measured_gain(event: Event) -> float | None:
    """Return by how much a difference of the sources may grow, None where no nudged run shows it."""
    if event.source is None:
        return 1.0
    if event.apart.floor is None or event.source.floor is None:
        return None
    if not math.isfinite(event.source.floor):
        return 1.0
    return max(1.0, event.apart.floor / max(event.source.floor, unit_roundoff(event.format), _TINY))
