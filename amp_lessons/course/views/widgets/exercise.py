"""An exercise as a card: what to write, what has been done about it, hints one by one, and the solution."""

from __future__ import annotations

from functools import partial

import ipywidgets
from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons._base.drawing.style import ACCENT, GRID
from amp_lessons._base.text import prose
from amp_lessons.course import exercises, progress
from amp_lessons.course.exercises import Exercise, Hint, OtherWay, repetition, shelf, so_far
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.progress import ProgressError, Record
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.base.controls import AreYouSure, button, row
from amp_lessons.course.views.base.html import block, details, live_region, markdown_details, paragraphs
from amp_lessons.course.views.widgets.counting import Open

STYLE = Markup(
    f"<style>.amp-card {{ border: 1px solid var(--jp-border-color2, {GRID}); "
    f"border-left: 5px solid {ACCENT}; border-radius: 4px; "
    "padding: 4px 14px 8px; overflow: visible } .amp-card p, .amp-card ul { margin: 4px 0 } "
    ".amp-card .widget-html, .amp-card .widget-html-content { margin: 0 } "
    ".amp-card .amp-exercise > p:first-child { font-size: 16px } "
    ".amp-card code { padding: 1px 3px; background: var(--jp-layout-color2, #eeeeee) }</style>"
)
SHOW_SOLUTION = "Show solution"
_SURE = "The solution gives the whole answer away, and your progress will say that you have seen it."
_DUE = f"It is {repetition.DUE}: empty the cell, check it once, and write it again from memory."


class ExerciseCard(Open):
    """One exercise. The hints open one after the other; the solution asks first, for it gives all away."""

    def __init__(self, exercise_id: str) -> None:
        """Show the exercise with that id; ValueError names the nearest ids if there is none."""
        self.exercise, self.exercise_id = shelf.find(exercise_id), exercise_id
        self._hints: dict[int, Hint] = {}
        self._solution_shown = False
        numbers = range(1, len(self.exercise.hints) + 1)
        self._hint_buttons = {
            number: button(f"Hint {number}", "from a nudge to nearly there", partial(self._show_hint, number))
            for number in numbers
        }
        why = "one right answer, and why it is right"
        self._solution_button = button(SHOW_SOLUTION, why, self._solution_wanted)
        shown = (ipywidgets.HTML() for _ in range(5))
        self._status, self._again, self._hints_html, self._solution_html, self._ways_html = shown
        self._question = AreYouSure(_SURE, "Show it anyway", "Keep trying", self.show_solution)
        task = ipywidgets.HTML(STYLE + self._task())
        buttons = row(*self._hint_buttons.values(), self._solution_button)
        below = (self._hints_html, self._question, self._solution_html, self._ways_html)
        super().__init__([task, self._status, self._again, buttons, *below], layout={"max_width": "900px"})
        self.add_class("amp-card")
        self.refresh_from_now_on()

    @property
    def status(self) -> str:
        """What the card says this learner has done about the exercise so far."""
        return self._said

    def hint(self, number: int) -> None:
        """Show a hint, as a click on its button does; ValueError if the one before it was not seen yet."""
        made = self._hint_buttons.get(number)
        if made is None or made.disabled:
            numbers = ", ".join(str(n) for n, each in self._hint_buttons.items() if not each.disabled)
            raise ValueError(f"hint {number!r} is not available now; choose one of {numbers}")
        self._show_hint(number)

    def show_solution(self) -> None:
        """Show the solution, as a click on “Show it anyway” does."""
        found = exercises.solution(self.exercise.id)
        self._question.hide()
        self._solution_shown = True
        self._solution_html.value = Markup('<div aria-live="polite">{}<p style="{}">{}</p>{}</div>').format(
            code_html(found.source, "Source of the solution"),
            CAPTION_STYLE,
            prose.as_html(found.explanation),
            rendering.message_html(found.message),
        )
        self.renew()

    def take_over(self, before: ExerciseCard) -> None:
        """Show the hints that were opened, and the solution if it was."""
        for number in before._hints:
            self._show_hint(number)
        if before._solution_shown:
            self.show_solution()

    def refresh(self) -> None:
        """Enable the next hint, then announce the record: what it speaks of can be pressed at once."""
        self._record, self._said = _read(self.exercise.id)
        self._again.value = self._empty_cell() if _DUE in self._said else ""
        seen = max([self._record.hints, *self._hints])
        for number, made in self._hint_buttons.items():
            made.disabled = number > seen + 1
        status = Markup('<p aria-live="polite" style="{}">{}</p>')
        self._status.value = status.format(CAPTION_STYLE, self._said)
        if self._solution_shown or self._record.solved:  # other ways, folded: nothing is left to give away
            self._ways_html.value = block(rendering.ways_html(self.exercise.other_ways, _source_of))

    def _empty_cell(self) -> Markup:
        """Render what the cell is emptied to, folded, and say whether what it holds now is kept."""
        stub = code_html(self.exercise.stub, "The empty cell")
        kept = prose.as_html(_what_is_kept(self.exercise.id))
        return block(details("The empty cell", stub), paragraphs([kept]))

    def _show_hint(self, number: int) -> None:
        self._hints[number] = exercises.hint(self.exercise.id, number)
        self._hints_html.value = live_region(*(_html(hint) for _, hint in sorted(self._hints.items())))
        self.renew()

    def _solution_wanted(self) -> None:
        """Ask first, unless there is nothing left to give away."""
        if self._solution_shown or self._record.solved:
            self.show_solution()
        else:
            self._question.ask(self._solution_button)

    def stand_in(self) -> Markup:
        """Return the task; the hints can be unfolded, and the solution is one call away."""
        hints = (details(f"Hint {n}", prose.as_html(text)) for n, text in enumerate(self.exercise.hints, 1))
        call = f'exercises.solution("{self.exercise.id}")'
        solution = Markup("<p>The solution: <code>from amp_lessons import exercises; {}</code></p>").format(
            call
        )
        done = paragraphs([self._said] if self._record != Record() else [])
        card = Markup('<div class="amp-card">{}{}</div>')
        return STYLE + card.format(self._task(), block(done, *hints, solution))

    def _task(self) -> Markup:
        return block(_html(self.exercise))

    def stored(self) -> dict[str, str]:
        """Leave the learner's progress out, so that a stored card is the same for everyone."""
        task = self.exercise._repr_mimebundle_()
        opened = [str(hint) for _, hint in sorted(self._hints.items())]
        hints = enumerate(map(prose.as_markdown, self.exercise.hints), start=1)
        folded = [markdown_details(f"Hint {number}", text) for number, text in hints]
        return {
            "text/plain": "\n".join([task["text/plain"], *opened]),
            "text/markdown": "\n\n".join([task["text/markdown"], *folded]),
        }


def _source_of(way: OtherWay) -> Markup:
    return code_html(way.source, f"Source of another way: {way.title}")


def _html(shown: Exercise | Hint) -> Markup:
    return Markup(shown._repr_mimebundle_()["text/html"])


def _read(exercise_id: str) -> tuple[Record, str]:
    """Return what has been done about an exercise, and say it; hints work where progress cannot be read."""
    try:
        found = progress.read()
    except ProgressError as error:
        return Record(), str(error)
    record = found.of(exercise_id)
    done = so_far(record)
    due = repetition.is_due(exercise_id, found)
    said = [f"So far: {done}." if done else "Not started yet.", _DUE if due else "", found.message]
    return record, " ".join(filter(None, said))


def _what_is_kept(exercise_id: str) -> str:
    """Describe where the learner's code is, or that it is in the cell alone: once code was not kept."""
    try:
        kept = exercises.written_by_you(exercise_id)
    except ProgressError as error:
        return str(error)
    if kept.newest is None:
        return "What you wrote is in your cell alone: copy it before you empty that."
    return (
        f"What passed on {kept.newest.at[:10]} is kept: `exercises.written_by_you({exercise_id!r})` shows it."
    )
