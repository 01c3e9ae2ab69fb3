"""Put two recordings side by side: which call, which tensor and which weight of one is which of the other."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from amp_lessons.audit.comparing.recording import Call, Recording, coarsest
from amp_lessons.audit.comparing.sketches import relative_difference

Phase = Literal["weights", "input", "forward", "backward", "gradient"]
_STAGES: tuple[tuple[Phase, ...], ...] = (("weights",), ("input", "forward"), ("backward", "gradient"))


class Apart(NamedTuple):
    """How far a tensor of one run is from the same of the other; ``floor`` is the same for nudged runs.

    Both are relative: norm of the difference over norm; ``floor`` is None where no nudged run has it.
    """

    difference: float
    floor: float | None


@dataclass(frozen=True)
class Event:
    """A tensor that both runs have: where it was computed, and what it was computed from.

    ``module`` is whose computation made it, "" for the code around all modules; ``count`` is how many numbers
    it has. ``source`` says how far apart that is from which it was computed, None where that is nothing.
    ``format`` is the coarsest that either run rounds to there, ``formats`` are those of the two.
    """

    step: int
    phase: Phase
    order: int
    module: str
    what: str
    count: int
    apart: Apart
    source: Apart | None
    format: str
    formats: tuple[str, str]

    @property
    def place(self) -> tuple[int, int, int]:
        """The place of an event: step, stage, order in the first run."""
        stage = next(i for i, phases in enumerate(_STAGES) if self.phase in phases)
        return self.step, stage, self.order


Key = tuple[int, str, int]


def key_of(call: Call) -> Key:
    """Return what a call has in common with that of another run: step, module and number in the step."""
    return call.step, call.module, call.number


def calls_of(recording: Recording) -> dict[Key, Call]:
    """Return the calls of a recording by their keys."""
    return {key_of(call): call for call in recording.calls}


def shared_formats(one: Recording, other: Recording) -> dict[int, list[str]]:
    """Return by step the coarser format of both, for each call of ``one`` in order, which a nudge needs."""
    theirs = calls_of(other)
    formats: dict[int, list[str]] = {}
    for call in one.calls:
        match = theirs.get(key_of(call), call)
        formats.setdefault(call.step, []).append(coarsest([call.format, match.format]))
    return formats


@dataclass
class Pairs:
    """Which value of ``a`` is which of ``b``, and of ``n``, which is ``a`` once more, nudged."""

    a: Recording
    b: Recording
    n: Recording | None
    _in_b: dict[int, int] = field(default_factory=dict)
    _in_n: dict[int, int] = field(default_factory=dict)
    _apart: dict[int, Apart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pair(self.b, self._in_b)
        if self.n is not None:
            self._pair(self.n, self._in_n)

    def _pair(self, other: Recording, found: dict[int, int]) -> None:
        theirs = calls_of(other)
        for key, call in calls_of(self.a).items():
            if (match := theirs.get(key)) is not None:
                for mine, its in ((call.inputs, match.inputs), (call.outputs, match.outputs)):
                    for slot in mine.keys() & its.keys():
                        found.setdefault(mine[slot], its[slot])
        for value, match_value in list(found.items()):
            gradients = self.a.values[value].gradient, other.values[match_value].gradient
            if min(gradients) >= 0:
                found[gradients[0]] = gradients[1]
        weights = {(each.step, each.name): each for each in other.weights}
        for weight in self.a.weights:
            match_weight = weights.get((weight.step, weight.name))
            if match_weight is not None:
                found[weight.value] = match_weight.value
                if weight.gradient >= 0 and match_weight.gradient >= 0:
                    found[weight.gradient] = match_weight.gradient

    def has(self, value: int) -> bool:
        """Whether both runs have a value of ``a``."""
        return value in self._in_b

    def apart(self, value: int) -> Apart:
        """Return how far a value of ``a`` is from that of ``b``; not at all where ``b`` has none."""
        if value not in self._apart:
            floor = _distance(self.a, self.n, value, self._in_n.get(value)) if self.n is not None else None
            difference = _distance(self.a, self.b, value, self._in_b.get(value)) or 0.0
            self._apart[value] = Apart(difference, floor)
        return self._apart[value]

    def together(self, values: Iterable[int]) -> Apart | None:
        """Return how far apart several values are, taken as one; None where ``b`` has none of them."""
        shared = [each for each in values if self.has(each)]
        if not shared:
            return None
        difference = _distance_of_all(self.a, self.b, [(each, self._in_b[each]) for each in shared])
        if self.n is None or not all(each in self._in_n for each in shared):
            return Apart(difference, None)
        floor = _distance_of_all(self.a, self.n, [(each, self._in_n[each]) for each in shared])
        return Apart(difference, floor)

    def dtypes(self, value: int) -> tuple[str, str]:
        """Return the formats in which the two runs hold a value."""
        return self.a.values[value].dtype, self.b.values[self._in_b[value]].dtype


_NOTHING = 1e-30  # what is smaller than this is lost in bf16 and fp32 alike, and missed by nobody


def _distance(one: Recording, other: Recording, value: int, match: int | None) -> float | None:
    if match is None:
        return None
    mine, its = one.values[value], other.values[match]
    if mine.shape != its.shape or mine.nonfinite != its.nonfinite:
        return math.inf
    one_sketch, other_sketch = one.sketches[value], other.sketches[match]
    if np.abs(one_sketch).max() + np.abs(other_sketch).max() < _NOTHING:
        return 0.0
    return relative_difference(one_sketch, other_sketch)


def _distance_of_all(one: Recording, other: Recording, pairs: list[tuple[int, int]]) -> float:
    if any(_distance(one, other, mine, its) == math.inf for mine, its in pairs):
        return math.inf
    mine = one.sketches[[value for value, _ in pairs]]
    its = other.sketches[[value for _, value in pairs]]
    return relative_difference(mine, its)


class Events:
    """Everything that both runs have, in the order in which the first run computed it."""

    def __init__(self, pairs: Pairs) -> None:
        self._pairs, self._a = pairs, pairs.a
        self._theirs = calls_of(pairs.b)
        self._consumers: dict[int, list[int]] = {}  # calls that were given a value, by value
        self._producer: dict[int, int] = {}  # the innermost call that made a value
        self._children: dict[tuple[int, int], list[int]] = {}  # calls, by step and the call around them
        self._by_module: dict[tuple[int, str], list[int]] = {}
        self._parent: dict[int, int] = {}  # the call around a call, -1 for none
        for i, call in enumerate(self._a.calls):
            # compiled code hides its modules: what only one run has is a part of what is around it
            around = call.parent
            while around >= 0 and around not in self._parent:
                around = self._a.calls[around].parent
            if self.in_b(call) is not None:
                self._parent[i] = around
                self._keep(i, call)

    def _keep(self, i: int, call: Call) -> None:
        self._children.setdefault((call.step, self._parent[i]), []).append(i)
        self._by_module.setdefault((call.step, call.module), []).append(i)
        for value in call.inputs.values():
            self._consumers.setdefault(value, []).append(i)
        for value in set(call.outputs.values()) - set(call.inputs.values()):
            self._producer[value] = i  # calls inside of this one come later in the list

    @cached_property
    def all(self) -> tuple[Event, ...]:
        """All events, in order."""
        events = [*self._weights(), *self._inputs(), *self._outputs(), *self._backward(), *self._gradients()]
        return tuple(sorted(events, key=lambda event: event.place))

    def _weights(self) -> Iterator[Event]:
        """Yield the weights before each step, which are made of what the last step had."""
        before = {(each.step, each.name): each for each in self._a.weights if each.step in self._a.steps}
        for weight in self._a.weights:
            former = before.get((weight.step - 1, weight.name))
            sources = []
            if former is not None:  # the weight or buffer itself, its gradient, what its module was given
                calls = [self._a.calls[i] for i in self._using(former.step, former.module)]
                given = (value for call in calls for value in call.inputs.values())
                sources = [former.value, former.gradient, *given]
            yield from self._event(weight.step, "weights", weight.value, weight.name, weight.module, sources)

    def _inputs(self) -> Iterator[Event]:
        """Yield what modules were given that no other module had returned: code in between has made it."""
        for value, (i, *_) in self._consumers.items():
            call = self._a.calls[i]
            if not self._came_from_outside(value):
                continue
            slot = next(slot for slot, given in call.inputs.items() if given == value)
            parent = self._parent[i]
            if parent >= 0:
                around = self._a.calls[parent]
                sources = [*around.inputs.values(), *self._returned_before(i), *self._own[parent]]
                what, blamed, calls = f"input {slot} of {call.module}", around.module, [parent]
            else:
                sources = self._returned_before(i)
                what, blamed, calls = f"input {slot}", call.module, []
            phase: Phase = "forward" if parent >= 0 else "input"
            yield from self._event(call.step, phase, value, what, blamed, sources, calls)

    def _came_from_outside(self, value: int) -> bool:
        """Whether a value was first seen as what a module was given."""
        first = self._a.calls[self._consumers[value][0]]
        return value not in self._producer or self._a.values[value].order >= first.order

    def _returned_before(self, i: int) -> list[int]:
        """Return what the calls before a call, beside it, have returned."""
        beside = self._children[self._a.calls[i].step, self._parent[i]]
        return [value for j in beside if j < i for value in self._a.calls[j].outputs.values()]

    def _outputs(self) -> Iterator[Event]:
        for value, i in self._producer.items():
            if value in self._consumers and self._came_from_outside(value):
                continue
            call = self._a.calls[i]
            inside = [self._a.calls[j] for j in self._children.get((call.step, i), ())]
            sources = [*call.inputs.values(), *self._own[i]]
            sources += [each for child in inside for each in child.outputs.values()]
            slot = next(slot for slot, returned in call.outputs.items() if returned == value)
            what = "output" if len(call.outputs) == 1 else f"output {slot}"
            yield from self._event(call.step, "forward", value, what, call.module, sources, [i])

    def _backward(self) -> Iterator[Event]:
        """Yield the gradients of values: they come from the calls that were given the value."""
        values = sorted({*self._producer, *self._consumers})
        latest = {self._a.values[value].gradient: value for value in values}  # where layers hand one through
        for gradient, value in latest.items():
            if gradient < 0:
                continue
            maker = self._consumers[value][0] if value not in self._producer else self._producer[value]
            calls, blamed = self._consuming(value, maker)
            step, module = self._a.calls[maker].step, self._a.calls[maker].module
            sources = [*self._around(maker, calls), value]
            what = f"gradient of the output of {module}"
            yield from self._event(step, "backward", gradient, what, blamed, sources, calls)

    def _consuming(self, value: int, maker: int) -> tuple[list[int], str]:
        """Return the innermost calls that were given a value, and the module to blame for its gradient."""
        given = self._consumers.get(value, [])
        innermost = [i for i in given if not any(self._parent[j] == i for j in given)]
        around = self._parent[maker]
        if len(innermost) == 1:
            return innermost, self._a.calls[innermost[0]].module
        return innermost, self._a.calls[around].module if around >= 0 else ""

    def _around(self, maker: int, calls: list[int]) -> list[int]:
        """Return what a gradient may have been computed from: all that was seen beside, and its gradients."""
        step, parent = self._a.calls[maker].step, self._parent[maker]
        if parent >= 0 and self._a.calls[parent].kind == "Sequential" and calls:
            beside = calls  # a chain: there is nothing else
        else:
            beside = [*self._children[step, parent], *([parent] if parent >= 0 else []), *calls]
        return [value for i in beside for value in self._touched(i)]

    def _touched(self, i: int) -> list[int]:
        """Return what a call took, used and returned, and the gradients of what it returned."""
        call = self._a.calls[i]
        found = [*call.inputs.values(), *call.outputs.values(), *self._own[i]]
        return [*found, *(self._a.values[value].gradient for value in call.outputs.values())]

    def _gradients(self) -> Iterator[Event]:
        """Yield the gradients of weights."""
        for weight in self._a.weights:
            if weight.gradient >= 0:
                calls = self._using(weight.step, weight.module)
                sources = [value for i in calls for value in self._touched(i)]
                what = f"gradient of {weight.name}"
                yield from self._event(
                    weight.step, "gradient", weight.gradient, what, weight.module, sources, calls
                )

    def _using(self, step: int, module: str) -> list[int]:
        """Return the calls that used a module's weights: its own, or those of what it is part of."""
        while module and (step, module) not in self._by_module:
            module = module.rpartition(".")[0]
        return self._by_module.get((step, module)) or self._children.get((step, -1), [])

    @cached_property
    def _own(self) -> Mapping[int, list[int]]:
        """The weights that a call used itself, by call."""
        found: dict[int, list[int]] = defaultdict(list)
        for weight in self._a.weights:
            for i in self._using(weight.step, weight.module):
                found[i].append(weight.value)
        return found

    def _event(
        self,
        step: int,
        phase: Phase,
        value: int,
        what: str,
        blamed: str,
        sources: Iterable[int],
        calls: Iterable[int] = (),
    ) -> Iterator[Event]:
        """Yield the event of a value, if both runs have it."""
        if not self._pairs.has(value):
            return
        order = self._a.values[value].order
        known = {each for each in sources if each != value and self._pairs.has(each)}
        known -= {each for each in known & self._are_gradients if self._a.values[each].order > order}
        formats = self._pairs.dtypes(value)
        both = [each for i in calls for each in (self._a.calls[i], self.in_b(self._a.calls[i]))]
        of_calls = [call.format for call in both if call is not None]
        yield Event(
            step=step,
            phase=phase,
            order=order,
            module=blamed,
            what=what,
            count=math.prod(self._a.values[value].shape),
            apart=self._pairs.apart(value),
            source=furthest(self._pairs.apart(each) for each in known),
            format=coarsest([*formats, *of_calls]),
            formats=formats,
        )

    @cached_property
    def _are_gradients(self) -> set[int]:
        """The values that are gradients, of which only earlier ones can be the source of another."""
        of_values = {value.gradient for value in self._a.values}
        return of_values | {weight.gradient for weight in self._a.weights}

    def in_b(self, call: Call) -> Call | None:
        """Return the second run's own of a call, None where it has none."""
        return self._theirs.get(key_of(call))


def furthest(sources: Iterable[Apart]) -> Apart | None:
    """Return the largest of the sources' differences, and of their floors; None without sources."""
    apart = list(sources)
    if not apart:
        return None
    floors = [each.floor for each in apart if each.floor is not None]
    return Apart(max(each.difference for each in apart), max(floors, default=None))
