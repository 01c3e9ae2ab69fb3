"""Parts of what a learner sees: tasks, other ways, what is wrong with the progress file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.audit.report.finding import MARK

if TYPE_CHECKING:
    from amp_lessons.course.exercises.report.results import OtherWay

ASKS = "What the check asks"


def message_text(message: str) -> str:
    """Render what is wrong with the progress file as a last line; nothing where nothing is."""
    return f"\n{MARK['note']} {message}" if message else ""


def message_markdown(message: str) -> str:
    """Render the same as a last paragraph."""
    return f"\n\n{MARK['note']} {prose.as_markdown(message)}" if message else ""


def message_html(message: str) -> Markup:
    """Render the same as HTML."""
    paragraph = Markup('<p><span aria-hidden="true">{}</span> {}</p>').format(MARK["note"], message)
    return paragraph if message else Markup("")


def ways_html(ways: Iterable[OtherWay], code: Callable[[OtherWay], Markup]) -> Markup:
    """Render other ways, each folded; ``code`` renders the source of one."""
    folded = Markup("<details><summary>{}</summary><p>{}</p>{}</details>")
    return Markup("").join(
        folded.format(prose.as_html(way.heading), prose.as_html(way.note), code(way)) for way in ways
    )


def card_bundle(title: str, facts: str, task: str, asks: str) -> dict[str, str]:
    """Render the card of an exercise: its title, some facts in a few words, and what to write."""
    folded = f"<details><summary>{ASKS}</summary>\n\n{prose.as_markdown(asks)}\n\n</details>"
    return {
        "text/plain": f"Exercise: {title} ({facts})\n{task_text(task, asks)}",
        "text/markdown": f"**Exercise: {title}** ({facts})\n\n{prose.as_markdown(task)}\n\n{folded}",
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
