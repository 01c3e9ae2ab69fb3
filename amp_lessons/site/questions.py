"""A question on a page: the browser knows its answers, and keeps which was the first."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from amp_lessons.quizzes import Choice, Question
from amp_lessons.text import prose
from amp_lessons.views.widgets.quiz import LETTERS

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
