"""Flash cards: say the answer, turn the card, tick what you covered, grade yourself."""

from __future__ import annotations

from functools import partial

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons._base.text import prose
from amp_lessons.course.interview import Card, Deck
from amp_lessons.course.interview.deck import suggested_grade, wait
from amp_lessons.course.progress import GRADES, ProgressError
from amp_lessons.course.views.base.controls import button, focus, row
from amp_lessons.course.views.base.html import block, details, live_region, markdown_details, paragraphs
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.widgets.rubric import Rubric

_HOW = (
    "Say the answer aloud, turn the card, tick what you covered, and grade yourself. The grade says when the "
    "card comes back."
)


class FlashCards(Shown):
    """The cards of a deck, one after the other; grades are kept at once, in the progress file."""

    def __init__(self, deck: Deck | None = None, first: str = "") -> None:
        """Show what is due in ``deck``, by default of all questions; ``first`` is the id of the first card.

        Raises KeyError for an unknown id.
        """
        self.deck = Deck() if deck is None else deck
        self._first = self.deck.card(first) if first else None
        self.card: Card | None = None
        self._status, self._front, self._proof = (ipywidgets.HTML() for _ in range(3))
        self._rubric = Rubric()
        self._turn = button("Turn the card", "show the model answer", self.turn)
        proof = button("Show the proof", "run the cell that shows that the answer is true", self.prove)
        self._back = button("Take the last grade back", "go back to the card before", self.take_back)
        self._graded = ""
        self._grades = {
            grade: button(grade, f"your grade: {grade}", partial(self.grade, grade)) for grade in GRADES
        }
        self._turned = ipywidgets.VBox([row(*self._grades.values(), proof), self._proof])
        children = [self._status, self._front, self._turn, self._rubric, self._turned, self._back]
        super().__init__(children, layout={"max_width": "900px"})
        self.add_class("amp-cards")
        self._back.layout.display = "none"
        self._show(self._first or self._next())

    @property
    def status(self) -> str:
        """What the view says above the card."""
        return self._said

    def turn(self) -> None:
        """Turn the card, as its button does."""
        assert self.card is not None
        self._turn.layout.display = "none"
        self._turned.layout.display = ""
        for grade, away in self.deck.waits(self.card).items():
            self._grades[grade].description = f"{grade}: in {wait(away)}"
        self._rubric.show(self.card.points, self.card.back, self.card.question.weak_answer)

    def prove(self) -> None:
        """Show the proof of the answer, as its button does."""
        assert self.card is not None
        self._proof.value = live_region(paragraphs(["The cell that proves it: working …"]))
        self._proof.value = live_region(self.card.prove().as_html())

    def grade(self, grade: str | None = None) -> None:
        """Grade the card, as a press of a button does: by default as the ticked points suggest."""
        assert self.card is not None
        chosen = grade or suggested_grade(len(self._rubric.covered), len(self.card.points))
        try:
            graded = self.deck.grade(self.card.id, chosen)
        except ProgressError as error:
            self._say(str(error))
            return
        self._graded, self._back.layout.display = self.card.id, ""
        self._show(self._next(), graded.message)
        focus(self._turn)

    def take_back(self) -> None:
        """Forget the last grade and ask its card again, as its button does."""
        try:
            message = self.deck.take_back(self._graded)
        except ProgressError as error:
            self._say(str(error))
            return
        self._back.layout.display = "none"
        self._show(self.deck.card(self._graded), message)
        focus(self._turn)

    def _next(self) -> Card | None:
        try:
            return self.deck.next()
        except ProgressError as error:
            self._say(str(error))
            return None

    def _show(self, card: Card | None, message: str = "") -> None:
        self.card = card
        self._rubric.hide()
        self._proof.value = ""
        self._turned.layout.display = "none"
        self._turn.layout.display = "" if card else "none"
        self._front.value = live_region(_asked(card) if card else paragraphs(["That is all for today."]))
        try:
            self._say(" ".join(filter(None, [f"{self.deck}.", message or self.deck.message])))
        except ProgressError as error:
            self._say(str(error))

    def _say(self, sentence: str) -> None:
        self._said = sentence
        self._status.value = Markup('<p style="{}">{}</p>').format(CAPTION_STYLE, sentence)

    def stand_in(self) -> Markup:
        """Return the first card, whose answer can be unfolded."""
        card = self._first or self.deck.cards[0]
        return block(paragraphs([_HOW]), _asked(card), details("Answer", prose.as_html(card.back)))

    def stored(self) -> dict[str, str]:
        """Leave out what this learner has practised: a stored card is the same for everyone."""
        card = self._first or self.deck.cards[0]
        answer = markdown_details("Answer", prose.as_markdown(card.back))
        return {
            "text/plain": f"{_HOW}\n{card.front}",
            "text/markdown": f"{_HOW}\n\n**{prose.as_markdown(card.front)}**\n\n{answer}",
        }


def _asked(card: Card) -> Markup:
    asked = Markup('<p>{}, {}</p><p style="font-weight:600">{}</p>')
    return asked.format(card.question.topic.replace("_", " "), card.question.level, prose.as_html(card.front))
