"""Ask a question, let the learner commit to an answer, and say why it is right or wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons.course import classroom, progress
from amp_lessons.course.progress import FirstAnswer, ProgressError
from amp_lessons.course.quizzes import Choice, Question, question, questions
from amp_lessons.course.views.base.controls import button, focus
from amp_lessons.course.views.base.html import block, details, live_region, markdown_details
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.widgets.counting import count_again

LETTERS = "abcdefgh"
# The look of whatever is asked: a view with the class ``amp-quiz``, its answers with ``amp-choice``.
SHEET = Path(__file__).with_name("quiz.css")
STYLE = Markup("<style>{}</style>").format(Markup(SHEET.read_text("utf-8")))
_SIGNS = {True: "amp-right", False: "amp-wrong"}
_OPEN = "amp-open"  # a question without an answer: the page covers what the lesson says of it below


class Quiz(Shown):
    """One question with a button for each choice; choosing one says why, and another may be tried."""

    def __init__(self, which: str | Question, then: Callable[[Choice], None] | None = None) -> None:
        """Ask ``which``: a question, or the id of one of the course's own; ``then`` gets each choice."""
        self._then = then
        self.question = question(which) if isinstance(which, str) else which
        self.chosen: Choice | None = None
        self._buttons = [
            choice_button(f"{LETTERS[i]})  {choice.text}", partial(self._choose, i))
            for i, choice in enumerate(self.question.choices)
        ]
        self._why = ipywidgets.HTML()
        self._again = button("Answer again", "put your earlier answer away, and choose again", self._clear)
        self._again.layout.display = "none"
        asked = ipywidgets.HTML(STYLE + self._asked())
        super().__init__([asked, *self._buttons, self._why, self._again], layout={"max_width": "900px"})
        self.add_class("amp-quiz").add_class(_OPEN)
        self._show_earlier_answer()

    def choose(self, letter: str) -> None:
        """Choose the answer with that letter, as a click on its button does."""
        letters = LETTERS[: len(self.question.choices)]
        if len(letter) != 1 or letter not in letters:
            raise ValueError(f"there is no answer {letter!r}; choose one of {', '.join(letters)}")
        self._choose(letters.index(letter))

    def take_over(self, before: Quiz) -> None:
        """Show the answer that was chosen last, without keeping it once more."""
        if before.chosen is None or before.question != self.question:
            return
        self._choose(self.question.choices.index(before.chosen), said=before._why.value)

    def _show_earlier_answer(self) -> None:
        """Show how the question was answered, on another day say: nobody has to remember it."""
        earlier = self._earlier()
        if earlier is None:
            return
        first = next((each for each in self.question.choices if each.text == earlier.chosen), None)
        found = self.question.answer if earlier.found_at else None
        self._sign(first, found)
        if first is not None and found is None:
            said = _verdict(first)
        else:
            said = "It was right." if earlier.right else "It was not right."
        said += f" You found the right one later. {_verdict(found)}" if found is not None else ""
        self.remove_class(_OPEN)
        self._why.value = block(f"Your first answer, on {earlier.at[:10]}. {said}")
        self._again.layout.display = ""

    def _earlier(self) -> FirstAnswer | None:
        try:
            return progress.read().answers.get(self.question.id) if self._is_kept() else None
        except ProgressError:  # said when an answer is to be kept
            return None

    def _is_kept(self) -> bool:
        """Whether this is a question of the lessons; one drawn for a drill, say, will not be asked again."""
        return questions().get(self.question.id) is self.question

    def _sign(self, *chosen: Choice | None) -> None:
        """Put the sign on these answers, and on no other."""
        for made, choice in zip(self._buttons, self.question.choices, strict=True):
            made.remove_class(_SIGNS[choice.right])
            if choice in chosen:
                made.add_class(_SIGNS[choice.right])

    def _clear(self) -> None:
        """Ask as if nothing had been answered; the keyboard goes to the first answer."""
        self.chosen, self._why.value, self._again.layout.display = None, "", "none"
        self._sign()
        self.add_class(_OPEN)
        focus(self._buttons[0])

    def _choose(self, i: int, said: str = "") -> None:
        """Show an answer and say why it is right or wrong; where that was ``said`` already, keep nothing."""
        self.chosen = self.question.choices[i]
        self._sign(self.chosen)
        self.remove_class(_OPEN)
        self._again.layout.display = "none"
        self._why.value = said or self._say_and_keep(i)
        self.renew_stand_in()
        if self._then is not None:
            self._then(self.chosen)

    def _say_and_keep(self, i: int) -> Markup:
        said = [self.verdict, classroom.predicted(self.question, i), self._keep()]
        return live_region(" ".join(filter(None, said)))

    def _keep(self) -> str:
        """Keep the first answer to a question of the lessons; return what is to be said of it."""
        if (chosen := self.chosen) is None or not self._is_kept():
            return ""
        try:
            said = progress.change(lambda kept: kept.answer(self.question.id, chosen.right, chosen.text))
        except ProgressError as error:
            return str(error)
        count_again()
        return said

    @property
    def verdict(self) -> str:
        """Return what is said about the chosen answer; nothing before one is chosen."""
        return "" if self.chosen is None else _verdict(self.chosen)

    def stand_in(self) -> Markup:
        """Return the question with its choices, the chosen one marked; the answer can be unfolded."""
        earlier = self._earlier()
        choices = Markup("").join(
            Markup("<div>{}{}</div>").format(line, _mark(choice, earlier))
            for line, choice in zip(self._choices(), self.question.choices, strict=True)
        )
        answer = self.question.answer
        return self._asked() + block(choices, details("Answer", f"{answer.text}: {answer.why}"))

    def _asked(self) -> Markup:
        return Markup('<div style="{};font-weight:600">{}</div>').format(CAPTION_STYLE, self.question.text)

    def _choices(self) -> list[str]:
        choices = zip(LETTERS, self.question.choices, strict=False)
        return [f"{letter}) {choice.text}" for letter, choice in choices]

    def stored(self) -> dict[str, str]:
        """Return the question with its choices; in markdown the answer can be unfolded."""
        text, answer = self.question.text, self.question.answer
        choices = "\n".join(f"- {choice}" for choice in self._choices())
        folded = markdown_details("Answer", f"{answer.text}: {answer.why}")
        return {
            "text/plain": "\n".join([text, *self._choices(), *filter(None, [self.verdict])]),
            "text/markdown": f"**{text}**\n\n{choices}\n\n{folded}",
        }


def several_stored(questions: Iterable[Question]) -> dict[str, str]:
    """Return several questions, one below the other, as ``Quiz.stored`` does one."""
    found = [Quiz(each).stored() for each in questions]
    return {
        "text/plain": "\n".join(each["text/plain"] for each in found),
        "text/markdown": "\n\n".join(each["text/markdown"] for each in found),
    }


def several_standing_in(questions: Iterable[Question]) -> Markup:
    """Return several questions as HTML; each answer can be unfolded."""
    return Markup("").join(Quiz(each).stand_in() for each in questions)


def _mark(choice: Choice, earlier: FirstAnswer | None) -> str:
    """Return what stands behind the first answer, and behind a right one that was found later."""
    if earlier is None:
        return ""
    if choice.text == earlier.chosen:
        return f" ← your first answer, on {earlier.at[:10]}: {'right' if choice.right else 'not right'}"
    return f" ← found on {earlier.found_at[:10]}: right" if choice.right and earlier.found_at else ""


def _verdict(chosen: Choice) -> str:
    return f"{'Yes.' if chosen.right else 'Not quite.'} {chosen.why}"


def choice_button(text: str, pressed: Callable[[], object]) -> ipywidgets.Button:
    """Return the button of an answer, which looks like one below an ``amp-quiz``."""
    made = ipywidgets.Button(description=text, layout={"width": "auto"})
    made.on_click(lambda _: pressed())
    made.add_class("amp-choice")
    return made
