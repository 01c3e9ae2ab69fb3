"""What a learner handed in, and the four questions that every check asks of it, each in one place.

Can it be called as the stub can? Has it been written? Did it leave the process as it was? Did it raise? The
answer is a value, or ``Rejected``, which ends the check: what follows may take all four for granted. How a
check reads then, ``largest_safe_scale/check.py`` shows: it rejects what is wrong, and yields remarks and what
holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import SideBySide


class Rejected(Exception):  # noqa: N818 - not an error: the answer to three of the questions
    """An attempt is not accepted, and the check is over: ``said`` is all that its report holds."""

    def __init__(self, *said: Finding | SideBySide) -> None:
        super().__init__(*said)
        self.said = said


def reject(code: str, message: str, hint: str) -> NoReturn:
    """End the check with this one finding."""
    raise Rejected(failed(code, message, hint))


def require_none(mistakes: Iterable[Finding], *comparisons: SideBySide) -> None:
    """End the check with the first of these mistakes and with ``comparisons``, unless there is none."""
    mistake = first(mistakes)
    if mistake is not None:
        raise Rejected(mistake, *comparisons)


@dataclass(frozen=True)
class Attempt:
    """What a learner handed in for the ``names`` that the stub defines."""

    value: Any
    names: tuple[str, ...]

    def function(self, *args: Any, **kwargs: Any) -> LearnersFunction:
        """Return the function, which can be called with arguments like these; anything else is rejected."""
        return callable_with(self.value, self.names[0], *args, **kwargs)


@dataclass(frozen=True)
class LearnersFunction:
    """A function of a learner's. Calling it asks whether it is written, behaves, and does not raise."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, about: str = "", **kwargs: Any) -> Any:
        """Return what the function returns; ``about`` says in a rejection what it was called for."""
        return run(self.function, *args, about=about, **kwargs)


def callable_with(value: Any, name: str, *args: Any, **kwargs: Any) -> LearnersFunction:
    """Return ``value`` as a function called ``name``. Raises Rejected if it cannot be called so."""
    finding = common_findings.uncallable(value, name, *args, **kwargs)
    if finding is not None:
        raise Rejected(finding)
    return LearnersFunction(value)


def run(code: Callable[..., Any], *args: Any, about: str = "", part: str = "", **kwargs: Any) -> Any:
    """Run code of a learner's and return what it returns. Raises Rejected if it is no good, or raises."""
    outcome = outcome_of(code, *args, part=part, **kwargs)
    if outcome.error is not None:
        raise Rejected(common_findings.raised(outcome, about))
    return outcome.value


def outcome_of(
    code: Callable[..., Any], *args: Any, part: str | Callable[[], str] = "", **kwargs: Any
) -> Outcome:
    """Run code of a learner's; an exception of its own is for the caller to explain.

    Raises Rejected if it is still the stub, or does what no attempt may do. ``part`` names what runs where it
    is one part of an exercise of which another is written; a function says it when the code has ended.
    """
    outcome = sandbox.call(code, *args, **kwargs)
    if common_findings.is_stub(outcome):
        raise Rejected(_stub(part() if callable(part) else part))
    finding = common_findings.misconduct(outcome)
    if finding is not None:
        raise Rejected(finding)
    return outcome


def _stub(part: str) -> Finding:
    return common_findings.unfinished(part) if part else common_findings.NOT_ATTEMPTED
