"""What a check, a hint and a solution hand back: plain frozen dataclasses that read well everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from amp_lessons.audit.findings import Finding
from amp_lessons.course.exercises.report import rendering

Status = Literal["passed", "not passed", "not attempted yet"]


@dataclass(frozen=True)
class SideBySide:
    """Expected numbers beside the learner's, for example the mean loss of each epoch.

    ``expected`` and ``yours`` are in the unit that ``quantity`` names, one value per ``index``.
    """

    quantity: str
    index: str
    expected: tuple[float, ...]
    yours: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """The outcome of one check: the root cause of a failure first, then notes, then what already holds.

    With ``seed``, if any, a check draws the same cases again.
    """

    exercise_id: str
    title: str
    findings: tuple[Finding, ...]
    comparisons: tuple[SideBySide, ...] = ()
    printed: str = ""
    seed: int | None = None

    @property
    def attempted(self) -> bool:
        """Whether there was anything to check."""
        return all(finding.kind != "todo" for finding in self.findings)

    @property
    def passed(self) -> bool:
        """Whether every requirement holds."""
        return bool(self.findings) and all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """1.0 where the exercise is solved, else 0.0: for graders."""
        return 1.0 if self.passed else 0.0

    @property
    def status(self) -> Status:
        """Say ``passed``, ``not passed`` or ``not attempted yet``."""
        if not self.attempted:
            return "not attempted yet"
        return "passed" if self.passed else "not passed"

    def __str__(self) -> str:
        return rendering.report_text(self)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {
            "text/plain": rendering.report_text(self),
            "text/markdown": rendering.report_markdown(self),
            "text/html": rendering.report_html(self),
        }


@dataclass(frozen=True)
class Hint:
    """The ``number``-th of ``total`` hints, from a nudge to nearly there.

    ``message`` says what is wrong with the progress file, if anything is.
    """

    exercise_id: str
    number: int
    total: int
    text: str
    message: str = ""

    def __str__(self) -> str:
        return rendering.with_message(f"Hint {self.number} of {self.total}: {self.text}", self.message)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        heading = f"Hint {self.number} of {self.total}"
        return rendering.prose_bundle(str(self), heading, self.text, self.message)


@dataclass(frozen=True)
class OtherWay:
    """Another good answer: what it is called, what distinguishes it, and its source."""

    title: str
    note: str
    source: str


@dataclass(frozen=True)
class Solution:
    """One right answer: its ``source``, why it is right, and the object that ``source`` defines.

    ``other_ways`` are as good, or better in what they say; ``message`` says what is wrong with the progress
    file, if anything is.
    """

    exercise_id: str
    source: str
    explanation: str
    function: Any
    message: str = ""
    other_ways: tuple[OtherWay, ...] = ()

    def __str__(self) -> str:
        return rendering.solution_text(self)

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return rendering.solution_bundle(self)
