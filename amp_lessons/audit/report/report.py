"""The report of an audit: its findings, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amp_lessons.audit.findings import Sighting
from amp_lessons.audit.seen import LayerSeen, Nonfinite, StepSeen


@dataclass(frozen=True)
class Report:
    """What is wrong with a training, as far as it was seen: mistakes first, then remarks.

    ``every`` is the distance of the steps that were looked at closely; ``ended`` says how the training ended
    if it was by an exception; ``not_seen`` says, a sentence each, what could not be watched.
    """

    findings: tuple[Sighting, ...]
    steps: tuple[StepSeen, ...] = ()
    layers: Mapping[str, LayerSeen] = field(default_factory=dict)
    first_nonfinite: Nonfinite | None = None
    every: int = 1
    ended: str = ""
    not_seen: tuple[str, ...] = ()
    of: str = ""

    @property
    def passed(self) -> bool:
        """Whether no mistake was seen; remarks do not count."""
        return all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """1.0 where no mistake was seen, else 0.0: for graders."""
        return 1.0 if self.passed else 0.0
