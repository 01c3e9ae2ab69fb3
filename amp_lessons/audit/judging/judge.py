"""Ask every rule about every event, and keep each mistake once: how often it was seen, and where first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from amp_lessons.audit.catalogue import ROWS
from amp_lessons.audit.catalogue.rows import weight
from amp_lessons.audit.findings import Finding, Sighting
from amp_lessons.audit.judging import beside, gradients, precision, scaler
from amp_lessons.audit.judging.rule import RULES, Memory, Verdict
from amp_lessons.audit.recorder import events
from amp_lessons.audit.recorder.places import place_of
from amp_lessons.audit.seen import PrecisionSeen, StepSeen

_Found = dict[tuple[str, events.Line], tuple[Verdict, int, int]]  # verdict, first step, how often
_AT_THE_END = (
    gradients.added_to_applied,
    precision.decay_never_acts,
    precision.unscaled_by_hand,
    scaler.begins_low,
    scaler.overflow_dropped,
    scaler.skips_again_and_again,
    beside.scaler_not_saved,
    beside.no_step,
)


class Judge:
    """Take the events of one training, and say what is wrong with it so far."""

    def __init__(self, steps: Callable[[], Sequence[StepSeen]] = tuple) -> None:
        self._memory = Memory(steps=steps)
        self._found: _Found = {}

    def judge(self, event: events.Event) -> None:
        """Ask every rule that is meant for events of this kind."""
        for rule in RULES.get(type(event), ()):
            for verdict in rule(event, self._memory):
                _keep(self._found, event, verdict)
        self._memory.remember(event)

    @property
    def precision(self) -> PrecisionSeen:
        """The precision that the training ran in so far."""
        return self._memory.precision

    def sightings(self) -> tuple[Sighting, ...]:
        """Return what was found: mistakes before remarks, what costs the training most before the rest."""
        return tuple(sorted(self._all(), key=_weight))

    def _all(self) -> Iterator[Sighting]:
        found = dict(self._found)
        for rule in _AT_THE_END:
            for event, verdict in rule(self._memory):
                _keep(found, event, verdict)
        for (code, line), (verdict, first, count) in found.items():
            yield Sighting(
                **asdict(verdict.finding),
                likely=verdict.likely,
                place=place_of(line),
                count=count,
                first_step=first,
                lesson=ROWS[code].lesson,
            )


def _keep(found: _Found, event: events.Event, verdict: Verdict) -> None:
    """Count a verdict; the surest of those that say the same of a line is kept."""
    key = verdict.finding.code, verdict.line or event.line
    kept, first, count = found.get(key, (verdict, event.step, 0))
    found[key] = (kept if verdict.likely else verdict, min(first, event.step), count + 1)


def _weight(sighting: Finding) -> tuple[bool, int, bool, int]:
    assert isinstance(sighting, Sighting)
    return sighting.ok, weight(sighting.code), bool(sighting.likely), sighting.first_step
