"""Ask every rule about every event, and keep each mistake once: how often it was seen, and where first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from amp_lessons.audit.findings import Sighting
from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.places import place_of
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import order, sighting
from amp_lessons.audit.rules.rule import RULES, AtTheEnd, Verdict
from amp_lessons.audit.seen import PrecisionSeen, StepSeen
from amp_lessons.formats.dtypes import dtype_name

# a verdict, the first step, and how often each kind of event has shown it
_Found = dict[tuple[str, events.Line], tuple[Verdict, int, dict[type, int]]]


class Judge:
    """Take the events of one training, and say what is wrong with it so far."""

    def __init__(self, steps: Callable[[], Sequence[StepSeen]] = tuple) -> None:
        self._past = Past(steps)
        self._found: _Found = {}
        self._rules: defaultdict[type, list[Callable[..., Any]]] = defaultdict(list)
        remembering = {entry.of: entry.of() for entry in RULES if entry.of is not None}
        for entry in sorted(RULES, key=lambda entry: entry.last):
            ask = entry.ask if entry.of is None else partial(entry.ask, remembering[entry.of])
            self._rules[entry.kind].append(ask)

    def judge(self, event: events.Event) -> None:
        """Ask every rule that is meant for events of this kind."""
        for ask in self._rules[type(event)]:
            for verdict in ask(event, self._past) or ():
                _keep(self._found, event, verdict)
        self._past.note(event)

    @property
    def precision(self) -> PrecisionSeen:
        """The precision that the training ran in so far."""
        seen = self._past.precision
        return PrecisionSeen(
            autocast_names=tuple(map(dtype_name, seen.autocast)),
            autocast_off=events.AutocastEntered in seen.off,
            scaler=seen.scaled,
            scaler_off=events.ScalerMade in seen.off,
            by_hand_names=tuple(map(dtype_name, seen.by_hand)),
        )

    def sightings(self) -> tuple[Sighting, ...]:
        """Return what was found: mistakes before remarks, what costs the training most before the rest."""
        found = dict(self._found)
        for ask in self._rules[AtTheEnd]:
            for verdict in ask(self._past):
                _keep(found, verdict.about, verdict)
        return tuple(sorted((_sighting(line, *seen) for (_, line), seen in found.items()), key=order))


def _sighting(line: events.Line, verdict: Verdict, first: int, counts: dict[type, int]) -> Sighting:
    seen = {"place": place_of(line), "count": max(counts.values()), "first_step": first}
    return sighting(verdict.finding, likely=verdict.likely, **seen)


def _keep(found: _Found, event: events.Event, verdict: Verdict) -> None:
    """Count a verdict; the surest of those that say the same of a line is kept.

    Events of several kinds may show it once each.
    """
    key = verdict.finding.code, verdict.line or event.line
    kept, first, counts = found.get(key, (verdict, event.step, {}))
    counts = counts | {type(event): counts.get(type(event), 0) + 1}
    found[key] = (kept if verdict.likely else verdict, min(first, event.step), counts)
