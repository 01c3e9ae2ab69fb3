"""The tree of symptoms as a page: it is walked by pressing answers, and can be read as a list."""

from __future__ import annotations

from markupsafe import Markup

from amp_lessons._base.text import prose
from amp_lessons.course.clinic.causes import ENDS, End
from amp_lessons.course.clinic.symptoms import SYMPTOMS, SymptomQuestion
from amp_lessons.course.site.shell import INSTALL, Page, as_script, lesson_link
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.widgets.symptoms import ways

_BODY = Markup(
    """<h1>From a symptom to its cause</h1>
<p>Answer what you see, until a cause is named, with lines to run that show whether it is so.</p>
<div id="tree" class="amp-quiz" aria-live="polite"></div>
<p class="how">Lines to run take <code>model</code>, <code>batch</code> (inputs and targets),
<code>loss_fn</code>, <code>optimizer</code>, <code>device</code>, autocast's <code>dtype</code>, and
<code>train()</code>, which makes some steps, from your script. What they import from <code>amp_lessons</code>
comes with <code>{install}</code>.</p>
<details><summary>The whole tree as a list</summary>{ways}</details>"""
)


def symptoms_page() -> Page:
    """Return the page of the tree."""
    return Page(
        "symptoms.html",
        "From a symptom to its cause",
        _BODY.format(install=INSTALL, ways=_ways_html()),
        scripts=("symptoms-data.js", "symptoms.js"),
        listed="Symptoms",
    )


def symptoms_script() -> str:
    """Return the script with the tree: a question is ``{asks, aside, answers}``, an end ``{cause, …}``."""
    return as_script("window.ampSymptoms", _node(SYMPTOMS))


def _node(at: SymptomQuestion | End) -> dict[str, object]:
    if isinstance(at, End):
        return {
            "cause": prose.as_html(at.cause),
            "cure": prose.as_html(at.cure),
            "lesson": lesson_link(at.lesson, at.section),
            "code": code_html(at.code, "Lines to run"),
        }
    asked, mark, aside = at.text.rpartition("?")
    answers = [[each.text, _node(each.then)] for each in at.answers]
    return {"asks": asked + mark, "aside": aside.strip(), "answers": answers}


def _ways_html() -> Markup:
    item = Markup("<li>{} <b>{}</b> {} ({})</li>").format
    group = Markup('<h2 id="{}">{}</h2><ul>{}</ul>').format
    places = {answer.text: f"walk-{place}" for place, answer in enumerate(SYMPTOMS.answers)}
    lessons = {end.cause: lesson_link(end.lesson, end.section) for end in ENDS.values()}
    return Markup("").join(
        group(places[symptom], symptom, Markup("").join(item(*way[:3], lessons[way[1]]) for way in found))
        for symptom, found in ways().items()
    )
