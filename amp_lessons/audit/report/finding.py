"""One finding, of a check, or of an audit with place and count, as an entry of a report."""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons._base.render import Entry
from amp_lessons.audit.findings import Finding, Sighting
from amp_lessons.audit.report.steps import ranks_in_words
from amp_lessons.audit.rules import ROWS
from amp_lessons.audit.rules.rows import EXPLAINED_AT

MARK = {"passed": "✓", "failed": "✗", "note": "!", "todo": "·"}
_WORD = {"passed": "holds", "failed": "mistake", "note": "note", "todo": "to do"}


def entry_of(finding: Finding) -> Entry:
    """Return a finding as a report shows it.

    What is still to do says all there is to say, and has no code that one could look up. Of somebody's own
    training, the code leads to what it means; an exercise says that itself.
    """
    explained = isinstance(finding, Sighting) and finding.code in ROWS
    return Entry(
        kind=finding.kind,
        mark=MARK[finding.kind],
        word=_WORD[finding.kind],
        message=finding.message,
        code="" if finding.kind == "todo" else finding.code,
        address=f"{EXPLAINED_AT}{finding.code}" if explained else "",
        parts=tuple(_parts(finding)),
    )


def _parts(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield what is said of a finding beside its message, each sentence with its heading."""
    if not isinstance(finding, Sighting):
        if finding.hint:
            yield "try", finding.hint
        return
    if finding.place is not None:
        yield "at", finding.place.shown
    yield finding.certainty, "; ".join(filter(None, [finding.likely, _how_often(finding)]))
    if finding.hint:
        yield "cure", finding.hint
    if finding.lesson:
        yield "lesson", f"{finding.lesson} explains it"


def _how_often(finding: Sighting) -> str:
    """Say when a mistake was seen; people count steps from 1."""
    on = f", on {ranks_in_words(finding.ranks)}" if finding.ranks else ""
    if finding.count == 1:
        return f"once, at step {finding.first_step + 1}{on}"
    return f"{finding.count} times, first at step {finding.first_step + 1}{on}"
