"""How a judge ends: an attempt is rejected, with all that its report is to hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.course.exercises.report.results import SideBySide


class Rejected(Exception):  # noqa: N818 - not an error: the answer to a question
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
