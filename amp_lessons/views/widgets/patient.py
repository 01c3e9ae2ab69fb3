"""A patient: what is seen of a run, a diagnosis to commit to, and then who met the same."""

from __future__ import annotations

import base64
from typing import Any

import ipywidgets
from markupsafe import Markup

from amp_lessons import clinic
from amp_lessons.quizzes import Choice, Question
from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.views.base.picture import CAPTION_STYLE
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.patients import observed_picture
from amp_lessons.views.widgets.quiz import Quiz

_LINK = "color:var(--jp-content-link-color,#0060A0);text-decoration:underline"


class Patient(View):
    """One patient. Its broken code is run when the view is made; each diagnosis is answered with a reason."""

    def __init__(self, patient_id: str, seed: int = 0) -> None:
        """Admit the patient with that id, in the variant of ``seed``; ValueError names the nearest ids."""
        self.patient = clinic.patient(patient_id, seed)
        choices = (Choice(each.text, each.because, each.right) for each in self.patient.diagnoses)
        self._quiz = Quiz(Question(patient_id, self.patient.symptom, tuple(choices)), self._diagnosed)
        self._met = ipywidgets.HTML()
        super().__init__([], alt=f"{self.patient.title}: what is seen of a run.")
        observed = self.patient.observe()
        self.show(observed_picture(observed), describe(observed), mark=MEASURED_MARK)
        self.children = (self._page, self._quiz, self._met)

    def diagnose(self, letter: str) -> None:
        """Commit to the diagnosis with that letter, as a click on its button does."""
        self._quiz.choose(letter)

    @property
    def verdict(self) -> str:
        """What is said about the diagnosis; nothing before there is one."""
        return self._quiz.verdict

    @property
    def question(self) -> Question:
        """The symptom, and what it may be."""
        return self._quiz.question

    def stand_in(self) -> Markup:
        """Return picture and question; the diagnosis, and who met it, can be unfolded."""
        met = Markup("<details><summary>Who met it</summary>{}</details>").format(self._sightings())
        return (
            self.page_html()
            + self._quiz.stand_in()
            + Markup('<div style="{}">{}</div>').format(CAPTION_STYLE, met)
        )

    def turn_page(self) -> None:
        """Bring the page up to date: the question stands below it."""
        self._page.value = self.page_html()

    def _diagnosed(self, choice: Choice) -> None:
        """Who met the same gives the diagnosis away: say it when the right one was found."""
        if choice.right:
            said = Markup('<div aria-live="polite" style="{}">People met it here:{}</div>')
            self._met.value = said.format(CAPTION_STYLE, self._sightings())

    def _sightings(self) -> Markup:
        item = Markup(
            '<li><a href="{url}" target="_blank" rel="noopener" style="{style}">{url}</a><br>{told}</li>'
        )
        items = (item.format(url=each.url, told=each.told, style=_LINK) for each in self.patient.seen_at)
        return Markup("<ul>{}</ul>").format(Markup("").join(items))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """Let the stored picture and the text carry the question, for readers without a kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        asked = self._quiz._repr_mimebundle_()["text/plain"].splitlines()
        bundle["text/plain"] = "\n".join([bundle["text/plain"], *asked])
        if self.picture is not None:
            bundle["image/png"] = base64.b64encode(self.picture.png("\n".join(asked))).decode()
        return bundle


def describe(observed: clinic.Observed) -> str:
    """Say in words what is seen of a run: where each curve begins and ends, and each number."""
    curves = [
        f"{each.quantity}, by {each.over}: from {each.values[0]:.4g} to {each.values[-1]:.4g}"
        for each in observed.curves
    ]
    numbers = [f"{name}: {number:.4g}" for name, number in observed.numbers.items()]
    return "; ".join([*curves, *numbers]) + "."
