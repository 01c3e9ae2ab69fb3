"""Reports, hints, solutions and cards as text, markdown and HTML. Nothing here decides anything."""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING

from amp_lessons.text import prose, tables

if TYPE_CHECKING:
    from amp_lessons.audit.findings import Finding
    from amp_lessons.exercises.exercise import Exercise
    from amp_lessons.exercises.report.results import Report, SideBySide, Solution

_MARK = {"passed": "✓", "failed": "✗", "note": "!", "todo": "·"}
_WORD = {"passed": "holds", "failed": "mistake", "note": "note", "todo": "to do"}
_WIDTH = 100
_MOST_PRINTED_LINES = 12


def report_text(report: Report) -> str:
    """Render a report for a terminal."""
    lines = [f"{report.title}: {report.status}"]
    for finding in report.findings:
        lines += _finding_lines(finding)
    for comparison in _shown(report):
        lines += ["", comparison.quantity, tables.as_text(*_table(comparison))]
    if report.printed:
        lines += ["", "your code printed:", _printed(report)]
    return "\n".join(lines)


def _printed(report: Report) -> str:
    """A check calls some attempts thousands of times; the first lines say what the others do."""
    lines = report.printed.splitlines()
    more = ["…"] if len(lines) > _MOST_PRINTED_LINES else []
    return "\n".join(lines[:_MOST_PRINTED_LINES] + more)


def _shown(report: Report) -> tuple[SideBySide, ...]:
    """Numbers help to find a mistake; beside a passed check they would only push it off the screen."""
    return () if report.passed else tuple(filter(_differs, report.comparisons))


def _differs(comparison: SideBySide) -> bool:
    """Whether there is a difference to see; numbers that end early are no news beside the finding."""
    pairs = zip(comparison.expected, comparison.yours, strict=False)
    return any(f"{expected:.6g}" != f"{yours:.6g}" for expected, yours in pairs)


def _finding_lines(finding: Finding) -> list[str]:
    head = f"{_MARK[finding.kind]} {finding.code}: {finding.message}"
    lines = textwrap.wrap(head, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    if finding.hint:
        lines += textwrap.wrap(
            f"try: {finding.hint}", _WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    return lines


def _table(comparison: SideBySide) -> tuple[list[str], list[list[str]]]:
    length = max(len(comparison.expected), len(comparison.yours))
    rows = [[str(i + 1), _cell(comparison.expected, i), _cell(comparison.yours, i)] for i in range(length)]
    return [comparison.index, "expected", "yours"], rows


def _cell(values: tuple[float, ...], i: int) -> str:
    return f"{values[i]:.6g}" if i < len(values) else "–"


def report_markdown(report: Report) -> str:
    """Render a report for GitHub and for notebooks without HTML."""
    lines = [f"**{report.title}: {report.status}**", "", *map(_finding_markdown, report.findings)]
    for comparison in _shown(report):
        lines += ["", f"{comparison.quantity}:", "", tables.as_markdown(*_table(comparison))]
    if report.printed:
        lines += ["", "Your code printed:", "", "```", _printed(report), "```"]
    return "\n".join(lines)


def _finding_markdown(finding: Finding) -> str:
    item = f"- {_MARK[finding.kind]} `{finding.code}` {prose.as_markdown(finding.message)}"
    return f"{item}\\\n  *Try:* {prose.as_markdown(finding.hint)}" if finding.hint else item


def report_html(report: Report) -> str:
    """Render a report as HTML whose meaning never rests on colour alone."""
    items = "".join(_finding_html(finding) for finding in report.findings)
    numbers = "".join(map(comparison_html, _shown(report)))
    printed = f"<p>Your code printed:</p><pre>{escape(_printed(report))}</pre>" if report.printed else ""
    return (
        f'<section class="amp-report" aria-label="Check of {escape(report.title)}">'
        f"<p><strong>{escape(report.title)}: {report.status}</strong></p>"
        f'<ul style="list-style:none;padding-left:0">{items}</ul>{numbers}{printed}</section>'
    )


def comparison_html(comparison: SideBySide) -> str:
    """Render expected numbers beside the learner's as a table."""
    return tables.as_html(*_table(comparison), caption=comparison.quantity)


def _finding_html(finding: Finding) -> str:
    hint = f"<br><em>Try:</em> {prose.as_html(finding.hint)}" if finding.hint else ""
    return (
        f'<li class="amp-{finding.kind}" style="margin:.4em 0">'
        f'<span aria-hidden="true">{_MARK[finding.kind]}</span> '
        f"<strong>{_WORD[finding.kind]}</strong> <code>{escape(finding.code)}</code> "
        f"{prose.as_html(finding.message)}{hint}</li>"
    )


def with_message(text: str, message: str) -> str:
    """Add what is wrong with the progress file, if anything is, as a report does."""
    return f"{text}\n{_MARK['note']} {message}" if message else text


def message_html(message: str) -> str:
    """Render what is wrong with the progress file; nothing where nothing is."""
    return f'<p><span aria-hidden="true">{_MARK["note"]}</span> {escape(message)}</p>' if message else ""


def _message_markdown(message: str) -> str:
    return f"\n\n{_MARK['note']} {prose.as_markdown(message)}" if message else ""


def prose_bundle(text: str, heading: str, body: str, message: str) -> dict[str, str]:
    """Render a heading and a paragraph."""
    return {
        "text/plain": text,
        "text/markdown": f"**{heading}.** {prose.as_markdown(body)}{_message_markdown(message)}",
        "text/html": f"<p><strong>{escape(heading)}.</strong> {prose.as_html(body)}</p>"
        f"{message_html(message)}",
    }


def solution_bundle(solution: Solution) -> dict[str, str]:
    """Render a solution: code first, then why it is right."""
    return {
        "text/plain": str(solution),
        "text/markdown": f"```python\n{solution.source}```\n\n{prose.as_markdown(solution.explanation)}"
        f"{_message_markdown(solution.message)}",
        "text/html": f"<pre><code>{escape(solution.source)}</code></pre>"
        f"<p>{prose.as_html(solution.explanation)}</p>{message_html(solution.message)}",
    }


def exercise_bundle(exercise: Exercise) -> dict[str, str]:
    """Render an exercise as a card: title, difficulty, minutes, what to write."""
    facts = f"difficulty {exercise.difficulty} of 5, about {exercise.minutes} minutes"
    return {
        "text/plain": f"Exercise: {exercise.title} ({facts})\n{exercise.task}",
        "text/markdown": f"**Exercise: {exercise.title}** ({facts})\n\n{prose.as_markdown(exercise.task)}",
        "text/html": (
            '<section class="amp-exercise" aria-label="Exercise">'
            f"<p><strong>Exercise: {escape(exercise.title)}</strong> ({facts})</p>"
            f"<p>{prose.as_html(exercise.task)}</p></section>"
        ),
    }
