"""Reports, hints, solutions and cards as text, markdown and HTML. Nothing here decides anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons._base.text.tables import Table
from amp_lessons.audit.report import finding

if TYPE_CHECKING:
    from amp_lessons.course.exercises.report.results import OtherWay, Report, SideBySide, Solution

ASKS = "What the check asks"
_MOST_PRINTED_LINES = 12


def report_text(report: Report) -> str:
    """Render a report for a terminal."""
    lines = [f"{report.title}: {report.status}"]
    for each in report.findings:
        lines += finding.text_lines(each)
    for comparison in _shown(report):
        lines += ["", str(comparison_table(comparison))]
    if report.printed:
        lines += ["", "your code printed:", _printed(report)]
    if again := _again(report):
        lines += ["", again]
    return "\n".join(lines)


def _again(report: Report) -> str:
    """Say how a refusal is had again: cases are drawn anew at each check."""
    if report.seed is None or report.status != "not passed":
        return ""
    return f"drawn with seed={report.seed}: hand that to check as well, and it draws the same cases again"


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


def comparison_table(comparison: SideBySide) -> Table:
    """Return expected numbers beside the learner's as a table."""
    length = max(len(comparison.expected), len(comparison.yours))
    rows = [(i + 1, _cell(comparison.expected, i), _cell(comparison.yours, i)) for i in range(length)]
    return Table((comparison.index, "expected", "yours"), rows, comparison.quantity)


def _cell(values: tuple[float, ...], i: int) -> str:
    return f"{values[i]:.6g}" if i < len(values) else "–"


def report_markdown(report: Report) -> str:
    """Render a report for GitHub and for notebooks without HTML."""
    lines = [f"**{report.title}: {report.status}**", "", *map(finding.as_markdown, report.findings)]
    for comparison in _shown(report):
        lines += ["", comparison_table(comparison).as_markdown()]
    if report.printed:
        lines += ["", "Your code printed:", "", "```", _printed(report), "```"]
    if again := _again(report):
        lines += ["", again]
    return "\n".join(lines)


def report_html(report: Report) -> Markup:
    """Render a report as HTML whose meaning never rests on colour alone."""
    nothing, again = Markup(""), _again(report)
    return Markup(
        '<section class="amp-report" aria-label="Check of {title}"><p><strong>{title}: {status}</strong></p>'
        '<ul style="list-style:none;padding-left:0">{findings}</ul>{numbers}{printed}{again}</section>'
    ).format(
        title=report.title,
        status=report.status,
        findings=nothing.join(map(finding.as_html, report.findings)),
        numbers=nothing.join(comparison_table(each).as_html() for each in _shown(report)),
        printed=_PRINTED.format(_printed(report)) if report.printed else nothing,
        again=Markup("<p><small>{}</small></p>").format(again) if again else nothing,
    )


_PRINTED = Markup("<p>Your code printed:</p><pre>{}</pre>")


def with_message(text: str, message: str) -> str:
    """Add what is wrong with the progress file, if anything is, as a report does."""
    return f"{text}\n{finding.MARK['note']} {message}" if message else text


def message_html(message: str) -> Markup:
    """Render what is wrong with the progress file; nothing where nothing is."""
    paragraph = Markup('<p><span aria-hidden="true">{}</span> {}</p>').format(finding.MARK["note"], message)
    return paragraph if message else Markup("")


def _message_markdown(message: str) -> str:
    return f"\n\n{finding.MARK['note']} {prose.as_markdown(message)}" if message else ""


def prose_bundle(text: str, heading: str, body: str, message: str) -> dict[str, str]:
    """Render a heading and a paragraph."""
    return {
        "text/plain": text,
        "text/markdown": f"**{heading}.** {prose.as_markdown(body)}{_message_markdown(message)}",
        "text/html": Markup("<p><strong>{}.</strong> {}</p>{}").format(
            heading, prose.as_html(body), message_html(message)
        ),
    }


def solution_text(solution: Solution) -> str:
    """Render a solution for a terminal: code first, then why it is right, then other ways."""
    ways = [f"{_another(way)}. {way.note}\n\n{way.source}" for way in solution.other_ways]
    text = "\n\n".join([f"{solution.source}\n{solution.explanation}", *ways])
    return with_message(text, solution.message)


def solution_bundle(solution: Solution) -> dict[str, str]:
    """Render a solution: code first, then why it is right, then other ways."""
    return {
        "text/plain": str(solution),
        "text/markdown": f"```python\n{solution.source}```\n\n{prose.as_markdown(solution.explanation)}"
        f"{''.join(map(_way_markdown, solution.other_ways))}{_message_markdown(solution.message)}",
        "text/html": Markup("{}<p>{}</p>{}{}").format(
            _CODE.format(solution.source),
            prose.as_html(solution.explanation),
            ways_html(solution.other_ways, lambda way: _CODE.format(way.source)),
            message_html(solution.message),
        ),
    }


def ways_html(ways: Iterable[OtherWay], code: Callable[[OtherWay], Markup]) -> Markup:
    """Render other ways, each folded; ``code`` renders the source of one."""
    folded = Markup("<details><summary>{}</summary><p>{}</p>{}</details>")
    return Markup("").join(
        folded.format(prose.as_html(_another(way)), prose.as_html(way.note), code(way)) for way in ways
    )


def _way_markdown(way: OtherWay) -> str:
    said = f"**{prose.as_markdown(_another(way))}.** {prose.as_markdown(way.note)}"
    return f"\n\n{said}\n\n```python\n{way.source}```"


def _another(way: OtherWay) -> str:
    return f"Another way: {way.title}"


_CODE = Markup("<pre><code>{}</code></pre>")


def card_bundle(title: str, facts: str, task: str, asks: str) -> dict[str, str]:
    """Render the card of an exercise: its title, some facts in a few words, and what to write."""
    return {
        "text/plain": f"Exercise: {title} ({facts})\n{task_text(task, asks)}",
        "text/markdown": f"**Exercise: {title}** ({facts})\n\n{_task_markdown(task, asks)}",
        "text/html": Markup(
            '<section class="amp-exercise" aria-label="Exercise">'
            "<p><strong>Exercise: {}</strong> ({})</p>{}</section>"
        ).format(title, facts, task_html(task, asks)),
    }


def task_text(task: str, asks: str) -> str:
    """Render for a terminal what to write, and below it what the check asks."""
    return f"{task}\n{ASKS}:\n{asks}"


def task_html(task: str, asks: str) -> Markup:
    """Render what to write, and folded below it what the check asks."""
    folded = Markup("<details><summary>{}</summary>{}</details>").format(ASKS, prose.blocks_as_html(asks))
    return prose.blocks_as_html(task) + folded


def _task_markdown(task: str, asks: str) -> str:
    folded = f"\n\n<details><summary>{ASKS}</summary>\n\n{prose.as_markdown(asks)}\n\n</details>"
    return prose.as_markdown(task) + folded
