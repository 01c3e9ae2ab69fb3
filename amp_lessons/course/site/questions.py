"""A question on a page: the browser knows its answers, and keeps which was the first.

What a lesson shows below a question answers it, too, and waits behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import nbformat
from markupsafe import Markup
from nbformat import NotebookNode

from amp_lessons._base.text import prose
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.course.views.widgets.quiz import LETTERS

# The classes are those of the notebooks' questions, whose style (quiz.css) the pages share.
_QUESTION = Markup(
    '<div class="amp-quiz" data-question="{id}" role="group" aria-label="Question">'
    '<p class="asked">{text}</p>{choices}<div class="said" aria-live="polite"></div></div>'
)
_CHOICE = Markup(
    '<button type="button" class="amp-choice jupyter-button" data-right="{right}" '
    'data-said="{said}">{letter})&nbsp; {text}</button>'
)
_WITHOUT_SCRIPTS = Markup("<noscript><details><summary>Answer</summary><p>{}: {}</p></details></noscript>")


def question_html(question: Question) -> Markup:
    """Return a question whose choices are buttons; without scripts its answer unfolds."""
    choices = map(_choice_html, LETTERS, question.choices)
    answer = _WITHOUT_SCRIPTS.format(question.answer.text, question.answer.why)
    asked = _QUESTION.format(
        id=question.id, text=prose.as_html(question.text), choices=Markup("").join(choices)
    )
    return asked + answer


def questions_html(questions: Iterable[Question], heading: str = "") -> Markup:
    """Return questions one below the other; ``heading`` is what each is called before its number."""
    numbered = Markup('<p class="number">{} {}</p>').format
    return Markup("").join(
        (numbered(heading, number) if heading else "") + question_html(each)
        for number, each in enumerate(questions, start=1)
    )


def _choice_html(letter: str, choice: Choice) -> Markup:
    said = f"{'Yes.' if choice.right else 'Not quite.'} {choice.why}"
    return _CHOICE.format(right=int(choice.right), said=said, letter=letter, text=choice.text)


# --- what waits behind a question

_QUIZ = re.compile(r'\bviews\.Quiz\("(.+?)"\)')
_VIEW = re.compile(r"\bviews\.[A-Z]\w+\(")
_END = "views.LessonEnd("


def behind_questions(cells: Iterable[NotebookNode]) -> Iterator[NotebookNode]:
    """Yield the cells of a page; what answers questions waits behind them, folded by the page's template.

    That is all that code below them shows, up to the next text, and that text where its cell's id ends in
    ``-why``. Such code notes the questions' ids as ``answers``. A heading begins something else. A lesson's
    end answers nothing, nor does a view that a text of its own leads to: it is there to be played with.
    """
    asked: list[str] = []
    asking, led, shown = False, False, False  # the cell before was a question; a text, an output came since
    waiting = None  # the last that waits
    for cell in cells:
        is_text, ids = cell.cell_type == "markdown", _QUIZ.findall(cell.source)
        if waiting and is_text and cell.id.endswith("-why"):
            _move_text(cell, waiting)
        if (is_text and (shown or cell.source.startswith("#"))) or (ids and not asking):
            asked, shown, waiting = [], False, None
        asked += ids
        asking, led = bool(ids), is_text or (led and not ids)
        if asked and cell.get("outputs") and not cell.metadata.get("unseen") and _END not in cell.source:
            shown = True
            if not (led and _VIEW.search(cell.source)):
                cell.metadata["answers"] = " ".join(asked)
                waiting = cell
        yield cell


def _move_text(cell: NotebookNode, waiting: NotebookNode) -> None:
    """Let a text wait with what is shown above it; its place on the page can still be linked to."""
    waiting.outputs.append(nbformat.v4.new_output("display_data", {"text/markdown": cell.source}))
    cell.source = ""
