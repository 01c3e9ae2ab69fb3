"""Ask a question, let the learner commit to an answer, and say why it is right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons import classroom
from amp_lessons.quizzes import Choice, Question, question
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.shown import Shown

LETTERS = "abcdefgh"
# ipywidgets centres the text of its buttons and cuts it off, and offers no setting for either.
STYLE = Markup(
    "<style>.amp-quiz .jupyter-button { height: auto; line-height: 1.5; padding: 4px 14px; "
    "text-align: left; white-space: normal }</style>"
)


class Quiz(Shown):
    """One question with a button for each choice; choosing one says why, and another may be tried."""

    def __init__(self, which: str | Question, then: Callable[[Choice], None] | None = None) -> None:
        """Ask ``which``: a question, or the id of one of the course's own; ``then`` hears each choice."""
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
        made = ipywidgets.Button(description=f"{LETTERS[i]})  {choice.text}", layout={"width": "auto"})
        made.on_click(lambda _: self._choose(i))
        return made

    def _choose(self, i: int) -> None:
        self.chosen = self.question.choices[i]
        for button, choice in zip(self._buttons, self.question.choices, strict=True):
            button.icon = "" if choice is not self.chosen else ("check" if choice.right else "times")
        why = Markup('<div aria-live="polite" style="{}">{}</div>')
        said = " ".join(filter(None, [self.verdict, classroom.predicted(self.question, i)]))
        self._why.value = why.format(CAPTION_STYLE, said)
        if self._then is not None:
            self._then(self.chosen)

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
