"""Ask a question, let the learner commit to an answer, and say why it is right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons import classroom
from amp_lessons.keeping import answers, progress
from amp_lessons.quizzes import Choice, Question, question, questions
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.shown import Shown
from amp_lessons.views.widgets.lesson_end import refresh_strips

LETTERS = "abcdefgh"
# The look of whatever is asked: a view with the class ``amp-quiz``, its answers with ``amp-choice``.
STYLE = Markup("<style>{}</style>").format(Markup(Path(__file__).with_name("quiz.css").read_text("utf-8")))
_SIGNS = {True: "amp-right", False: "amp-wrong"}


class Quiz(Shown):
    """One question with a button for each choice; choosing one says why, and another may be tried."""

    def __init__(self, which: str | Question, then: Callable[[Choice], None] | None = None) -> None:
        """Ask ``which``: a question, or the id of one of the course's own; ``then`` gets each choice."""
        self._then = then
        self.question = question(which) if isinstance(which, str) else which
        self.chosen: Choice | None = None
        self._buttons = [self._button(i, choice) for i, choice in enumerate(self.question.choices)]
        self._why = ipywidgets.HTML()
        asked = ipywidgets.HTML(STYLE + self._asked())
        super().__init__([asked, *self._buttons, self._why], layout={"max_width": "900px"})
        self.add_class("amp-quiz")

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does."""
        letters = LETTERS[: len(self.question.choices)]
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"there is no answer {letter!r}; choose one of {', '.join(letters)}")
        self._choose(letters.index(letter))

    def _button(self, i: int, choice: Choice) -> ipywidgets.Button:
        made = choice_button(f"{LETTERS[i]})  {choice.text}")
        made.on_click(lambda _: self._choose(i))
        return made

    def _choose(self, i: int) -> None:
        self.chosen = self.question.choices[i]
        for button, choice in zip(self._buttons, self.question.choices, strict=True):
            button.remove_class(_SIGNS[choice.right])
            if choice is self.chosen:
                button.add_class(_SIGNS[choice.right])
        why = Markup('<div aria-live="polite" style="{}">{}</div>')
        said = [self.verdict, classroom.predicted(self.question, i), self._keep()]
        self._why.value = why.format(CAPTION_STYLE, " ".join(filter(None, said)))
        if self._then is not None:
            self._then(self.chosen)

    def _keep(self) -> str:
        """Keep the first answer to a question of the lessons; return what is to be said of it."""
        if self.chosen is None or questions().get(self.question.id) is not self.question:
            return ""  # drawn for a drill, say: it will not be asked again
        try:
            said = answers.record(self.question.id, self.chosen.right)
        except progress.ProgressError as error:
            return str(error)
        refresh_strips()
        return said

    @property
    def verdict(self) -> str:
        """Return what is said about the chosen answer; nothing before one is chosen."""
        if self.chosen is None:
            return ""
        return f"{'Yes.' if self.chosen.right else 'Not quite.'} {self.chosen.why}"

    def stand_in(self) -> Markup:
        """Return the question with its choices; the answer can be unfolded."""
        choices = Markup("").join(Markup("<div>{}</div>").format(choice) for choice in self._choices())
        answer = self.question.answer
        return Markup(
            '{}<div style="{style}">{}<details><summary>Answer</summary>{}: {}</details></div>'
        ).format(self._asked(), choices, answer.text, answer.why, style=CAPTION_STYLE)

    def _asked(self) -> Markup:
        return Markup('<div style="{};font-weight:600">{}</div>').format(CAPTION_STYLE, self.question.text)

    def _choices(self) -> list[str]:
        choices = zip(LETTERS, self.question.choices, strict=False)
        return [f"{letter}) {choice.text}" for letter, choice in choices]

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = "\n".join(
            [self.question.text, *self._choices(), *([self.verdict] if self.chosen else [])]
        )
        answer = self.question.answer
        bundle["text/markdown"] = (
            f"**{self.question.text}**\n\n"
            + "\n".join(f"- {choice}" for choice in self._choices())
            + f"\n\n<details><summary>Answer</summary>\n\n{answer.text}: {answer.why}\n\n</details>"
        )
        return bundle


def choice_button(text: str) -> ipywidgets.Button:
    """Return the button of an answer, which looks like one below an ``amp-quiz``."""
    made = ipywidgets.Button(description=text, layout={"width": "auto"})
    made.add_class("amp-choice")
    return made
