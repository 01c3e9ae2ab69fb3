"""What stands on a page where a notebook shows a view: something that needs no kernel, or a picture."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from nbformat import NotebookNode
from PIL import Image

from amp_lessons._base.drawing.picture import SCROLLING_BOX, without_caption
from amp_lessons._base.text import prose
from amp_lessons.course import clinic, views
from amp_lessons.course.exercises import shelf as exercises
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview import drills
from amp_lessons.course.lessons.fresh import taught
from amp_lessons.course.lessons.shipped import Head
from amp_lessons.course.quizzes import Choice, Question, question
from amp_lessons.course.site.float_page import bits_html
from amp_lessons.course.site.making import NARROW, RECORDED
from amp_lessons.course.site.placeholder import Placeholder
from amp_lessons.course.site.questions import question_html, questions_html
from amp_lessons.course.views.base.code import code_html
from amp_lessons.course.views.widgets.loss_curves import describe, loss_curve_picture

_CALL = re.compile(r"\bviews\.(\w+)\(")
_STRING = re.compile(r'"([^"]+)"')
_RANGE = re.compile(r"range\((\d+), (\d+)\)")


@dataclass(frozen=True)
class Shown:
    """One view of the lessons, and how its page shows it: for the table of what is live."""

    lesson: Head
    cell: str
    view: str
    how: str


@dataclass
class Shelf:
    """What pages need: where files go, and what stands still of each live view, by lesson and cell.

    ``has_cards`` says whether there is a page of cards, ``shown`` how each view is shown, in the order of the
    lessons, ``pictures`` what stands for it on its page, by lesson and cell.
    """

    out: Path
    live: Mapping[tuple[str, str], str] = field(default_factory=dict)
    has_cards: bool = False
    shown: list[Shown] = field(default_factory=list)
    pictures: dict[tuple[str, str], Markup] = field(default_factory=dict)


def substituted(cell: NotebookNode, head: Head, shelf: Shelf) -> NotebookNode:
    """Return a cell with what its page shows; pictures become files of their own."""
    is_of_a_notebook = (head.number, cell.id) in _ONLY_OF_A_NOTEBOOK
    if is_of_a_notebook or cell.metadata.get("jupyter", {}).get("source_hidden"):
        return nbformat.v4.new_markdown_cell("", id=cell.id)
    if cell.cell_type != "code":
        cell.source = said_on_pages(cell.source)
        return cell
    cell = taught(cell)
    named = _CALL.findall(cell.source)
    prints = any(output.output_type == "stream" for output in cell.outputs)  # what came out of a view, too
    if named and named[-1] in _INSTEAD and not prints:
        return _showing(cell, _INSTEAD[named[-1]](cell.source))
    if named and named[-1] == "CurveQuiz":
        return _showing(cell, _curve_quiz(cell, head, shelf))
    if named and named[-1] == "FlashCards" and shelf.has_cards:
        return _showing(cell, _cards(cell.source), imports="")  # what the deck alone needs
    if (
        named
        and named[-1] == "BitView"
        and (head, "BitView") not in ((each.lesson, each.view) for each in shelf.shown)
    ):  # the first of a page: what moves in it is found by its id
        shelf.shown.append(Shown(head, cell.id, "BitView", "live."))
        given, by_name = _given(cell.source)
        made = bits_html(*given, **by_name, level=3)
        cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": made})]
        return cell
    if named and named[-1] == "LessonEnd":  # what it says is there, not the call
        cell.metadata.update(unseen=True, imports="")
    pictures = [output for output in cell.outputs if "image/png" in output.get("data", {})]
    if pictures:
        _picture_to_file(pictures[-1], cell, named[-1], head, shelf)
    if named and named[-1] == "Patient":
        asked = nbformat.v4.new_output("display_data", {"text/html": _patient(cell.source)})
        cell.outputs.append(asked)
        cell.metadata["unseen"] = True
    return cell


# How to run cells, and a call that prints what a reader has answered in the cell before.
_ONLY_OF_A_NOTEBOOK = {("00", "how-to"), ("06", "tree-next")}
_BITS = "[page of bits](float.html)"
# What texts say of a notebook's keys, cells and controls, and what a page says instead.
ON_PAGES = {
    "code that you run. Click into the next cell, press Shift+Enter, and drag the slider that appears": (
        "code. Drag the slider below the code"
    ),
    "Run the next cell and press an answer": "Press an answer",
    "(type 65519, 65520 and 2^-25 above)": f"(type 65519, 65520 and 2^-25 on the {_BITS})",
    "type 1.001 above": f"type 1.001 on the {_BITS}",
    "Run the next cell. Then click a bit": f"On the {_BITS} click a bit",
    "into the view above": f"on the {_BITS}",
    "Run the next cell. Zoom with the first slider, travel with the second, or type a number.": (
        "Zoom with the slider (the notebook has another one, to travel with, and a field for a number)."
    ),
    "Then type 2048": "Then, in the notebook, type 2048",
    "Run the next cell and move the outlier": "Move the outlier",
    "Then type the full name of one": "Then, in the notebook, type the full name of one",
    "Run the next cell, and step through": "Step through",
    "Choose the transformer block, by": "In the notebook, choose the transformer block, by",
    "Run the next cell. Turn the knobs, train on, inject an overflow.": (
        "Turn the knobs (the notebook has buttons, too, which train on and inject an overflow)."
    ),
    "Run the next cell. Its slider goes": "The slider goes",
    "choose bf16 and press *Start*": "in the notebook, choose bf16 and press *Start*",
    " (A long cell that you run meanwhile pauses the race.)": "",
    "Before you run the next cell: what": "Predict: what",
    "Run the cell, and make the product larger": "In the notebook, make the product larger",
    "Write other numbers for 16": "In the notebook, write other numbers for 16",
    "Find the smallest GPU": "In the notebook, find the smallest GPU",
    "Run the next cell. Two numbers": "Two numbers",
    "that take place on this machine when you run the cell": "that took place when this page was made",
    "Run the next cell, and find the exponent": "Find the exponent",
    "Run the next cell. **Find out:**": "**Find out:**",
    "Run the next cell: that is DDP": "In the notebook, run the next cell: that is DDP",
    "Run the next cell. It shows": "The view shows",
    "give the tensor an outlier": "in the notebook, give the tensor an outlier",
    "Run the next cell. Find the inner dimension": "In the notebook, find the inner dimension",
    "Run the next cell and press *Start*": "In the notebook, run the next cell and press *Start*",
    "Run the next cell, and choose parts": "In the notebook, choose parts",
    "run the cell again, and each product": "run it again, and each product",
    " The third cell writes the lines of your end into a new cell.": "",
    "gains and loses on your machine": "gains and loses",
    "saves time on your machine, if at any": "saved time on the machine that made this page, if at any",
    "before you run this": "before you read on",
    "before you run on": "before you read on",
    "Count before you run.": "Count before you read on.",
    " before you run the cell below it": "",
    " before you run the cell after the question": "",
    " before you run the cell after it": "",
    " (In JupyterLab click the arrow left of a heading, or *cells hidden* below it. "
    "In Colab and VS Code they stand open.)": "",
    " In JupyterLab click *cells hidden* below a heading.": "",
    " In JupyterLab a click on *cells hidden* below a heading opens its section.": "",
    " (In JupyterLab they are folded: click *cells hidden* below a heading.)": "",
    " (In JupyterLab these sections are folded: click *cells hidden* below a heading.)": "",
    " To open one in JupyterLab, click *cells hidden* below its heading.": "",
    " In Colab and VS Code they stand open.": "",
    " In JupyterLab open one with the button below its heading; in Colab and VS Code they stand open.": "",
}


def said_on_pages(text: str) -> str:
    """Return a text of a notebook as a page says it."""
    for words, instead in ON_PAGES.items():
        text = text.replace(words, instead)
    return text


def _showing(cell: NotebookNode, made: Markup, imports: str | None = None) -> NotebookNode:
    """Replace what a cell shows; of its code are seen the ``imports``, which later cells need."""
    cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": made})]
    cell.metadata.update(unseen=True, imports=_imports(cell.source) if imports is None else imports)
    return cell


def _imports(source: str) -> str:
    """Return the statements that import something other than ``views`` alone, which pages do without."""
    imports = [each for each in ast.parse(source).body if isinstance(each, (ast.Import, ast.ImportFrom))]
    told = [each for each in imports if [name.name for name in each.names] != ["views"]]
    return "\n".join(map(ast.unparse, told))


def _picture_to_file(output: NotebookNode, cell: NotebookNode, view: str, head: Head, shelf: Shelf) -> None:
    """Put a picture into a file, which is loaded when it comes into view; a live view goes around it.

    Its caption stands below it, as text of the page; in the file it would stand once more. Where frames come,
    both are of the run that made them.
    """
    recorded = shelf.out / "frames" / f"{head.number}-{cell.id}{RECORDED}"
    if recorded.exists():
        output.data = json.loads(recorded.read_text("utf-8"))
        recorded.unlink()
    stem = f"{head.number}-{cell.id}"
    caption, drawn = captions(output.data["text/plain"], view)
    (shelf.out / "pictures").mkdir(exist_ok=True)
    if (head.number, cell.id) in shelf.live:
        picture = _live(Placeholder(shelf.out / "frames" / f"{stem}.js"), stem, shelf.out)
    else:
        name = f"pictures/{stem}.png"
        image = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
        shown = without_caption(image, drawn)
        shown.save(shelf.out / name)
        picture = _figure(name, shown.size, caption, _for_phones(stem, cell.source, view, shelf))
    shelf.pictures[head.number, cell.id] = picture
    output.data = {"text/html": _around(picture, cell.id, view, head, shelf)}


# Where a view comes to live as soon as it is looked at, and what stands there until then.
_LIVE = Markup('<div class="amp-live" data-frames="{}">{}</div>')


def _live(place: Placeholder, stem: str, out: Path) -> Markup:
    """Return where a view comes to live; its drawings are those that the frames bring, and stand in files."""
    kinds = ("", ".narrow")
    files = [
        (f"pictures/{stem}{kind}.svg", *drawn)
        for kind, drawn in zip(kinds, place.drawings(), strict=False)  # none, where a table is shown
    ]
    for name, drawing, _ in files:
        (out / name).write_text(drawing, "utf-8")
    for_phones = Markup().join(_SOURCE.format(name, *size) for name, _, size in files[1:])
    figure = [_figure(name, size, place.page("caption"), for_phones) for name, _, size in files[:1]]
    return _LIVE.format(stem, place.html(Markup().join(figure)))


def _figure(name: str, size: tuple[int, int], caption: str, for_phones: Markup | None = None) -> Markup:
    return Markup(
        '<figure class="picture">{5}<a href="{0}"><picture>{4}'
        '<img class="amp-paper" loading="lazy" src="{0}" width="{1}" height="{2}" alt="{3}">'
        '</picture></a></div><figcaption aria-hidden="true">{3}</figcaption></figure>'
    ).format(name, *size, caption, for_phones or "", SCROLLING_BOX)


def captions(text: str, view: str) -> tuple[str, str]:
    """Return the caption of a stored picture, and what is drawn below it: a patient's question, instead.

    ``text`` is what the notebook stores beside the picture.
    """
    caption, _, more = text.partition("\n")
    return caption, more if view == "Patient" else re.sub(r"^\[\w+\] ", "", caption)


_SOURCE = Markup('<source media="(max-width: 500px)" srcset="{}" width="{}" height="{}">')


def _for_phones(name: str, source: str, view: str, shelf: Shelf) -> Markup:
    """Return where a phone finds the narrow drawing of a picture; nothing where there is none.

    It came with the frames, or is drawn here for a view that has a page of its own.
    """
    file = f"frames/{name}{NARROW}"
    if view in _ELSEWHERE:
        file = f"pictures/{name}{NARROW}"
        given, by_name = _given(source)
        (shelf.out / file).write_bytes(getattr(views, view)(*given, **by_name).picture.narrow.png())
    if not (shelf.out / file).exists():
        return Markup()
    with Image.open(shelf.out / file) as image:
        return _SOURCE.format(file, *image.size)


def _given(source: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what the last call of a cell is given, by place and by name."""
    call = ast.parse(source).body[-1].value  # type: ignore[attr-defined]
    by_name = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    return [ast.literal_eval(each) for each in call.args], by_name


def _around(picture: Markup, cell_id: str, view: str, head: Head, shelf: Shelf) -> Markup:
    """Return a picture as it is where frames come; else with how to get the view that moves."""
    if view[0].islower() or view == "Patient":  # a picture in the notebook, too
        return picture
    still = shelf.live.get((head.number, cell_id))
    if still is not None:
        shelf.shown.append(Shown(head, cell_id, view, f"live. {still}"))
        return picture
    shelf.shown.append(Shown(head, cell_id, view, f"a picture: {_why_still(view)}"))
    return _ELSEWHERE.get(view, Markup()) + picture + _HOW.format(_why_still(view))


def _why_still(view: str) -> str:
    return getattr(views, view).why_still or "what its controls take has no end"


_HOW = Markup(
    '<p class="how">A picture of one state: {}. It moves in a notebook; '
    "the links at the lesson's head open one.</p>"
)

_ELSEWHERE = {
    "BitView": Markup('<p class="way"><a href="float.html">Flip bits on a page of their own</a></p>'),
}


# --- what asks something of a reader

_CHECK = Markup(
    '<p class="how">The check runs your code: open this lesson in Colab or Kaggle (the links at its head), '
    "or on your machine by <code>amp-lessons lab</code>.</p>"
)


def _quiz(source: str) -> Markup:
    return question_html(question(_STRING.findall(source)[-1]))


def _curve_quiz(cell: NotebookNode, head: Head, shelf: Shelf) -> Markup:
    """Return each curve with its question; trainings take a fraction of a second, and are made anew."""
    made = []
    for number in range(*map(int, _RANGE.findall(cell.source)[-1])):
        curve = clinic.loss_curve(clinic.LOSS_CURVES[number - 1])
        name = f"pictures/{head.number}-{cell.id}-{number}.png"
        (shelf.out / name).write_bytes(loss_curve_picture(curve).png())
        with Image.open(shelf.out / name) as image:
            made.append(_figure(name, image.size, f"Curve {number}: {describe(curve)}"))
        made.append(question_html(question(f"curves.{curve.id}")))
    return Markup("").join(made)


def _patient(source: str) -> Markup:
    patient = clinic.patient(_STRING.findall(source)[-1])
    choices = tuple(Choice(each.text, each.because, each.right) for each in patient.diagnoses)
    met = Markup("").join(
        Markup('<li><a href="{}">{}</a><br>{}</li>').format(each.url, each.url, each.told)
        for each in patient.seen_at
    )
    folded = Markup(
        "<details><summary>Who met it (this gives the diagnosis away)</summary><ul>{}</ul></details>"
    )
    return question_html(Question(patient.id, patient.symptom, choices)) + folded.format(met)


def _card(source: str) -> Markup:
    """Return an exercise: its task, hints and a solution, each folded."""
    return exercise_html(exercises.find(_STRING.findall(source)[-1]))


def exercise_html(exercise: Exercise) -> Markup:
    """Return an exercise as a card; nothing of a learner's progress is read or written."""
    fold = Markup("<details><summary>{}</summary>{}</details>").format
    hints = (fold(f"Hint {n}", prose.as_html(text)) for n, text in enumerate(exercise.hints, start=1))
    why = Markup("<p>{}</p>").format(prose.as_html(exercise.explanation))
    ways = rendering.ways_html(exercise.other_ways, lambda way: code_html(way.source, f"Source: {way.title}"))
    solution = code_html(exercise.solution_source, "Source of the solution") + why + ways
    return Markup('<div class="amp-card">{}{}{}</div>').format(
        exercise._repr_mimebundle_()["text/html"],
        Markup("").join(hints),
        fold("Solution, and why (it gives the whole answer away)", solution),
    )


def _drills(source: str) -> Markup:
    """Return the drills of the notebook's seed that need no picture; here no clock runs."""
    seed = int(re.findall(r"seed=(\d+)", source)[-1])
    return questions_html([each.question for each in drills(seed, 8) if not each.curve], "Drill")


def _cards(source: str) -> Markup:
    """Return a link to the page of cards, which begins with the lesson's own if the deck is a lesson's."""
    lesson = re.search(r'lessons="(\d+)"', source)
    to = f"cards.html?lesson={lesson[1]}" if lesson else "cards.html"
    return _link_to(to, "The cards have a page of their own: turn them there")("")


def _link_to(file: str, words: str) -> Callable[[str], Markup]:
    return lambda _: Markup('<p class="way"><a href="{}">{}</a></p>').format(file, words)


_INSTEAD: dict[str, Callable[[str], Markup]] = {
    "Quiz": _quiz,
    "ExerciseCard": _card,
    "check": lambda _: _CHECK,
    "DrillView": _drills,
    "SymptomTree": _link_to("symptoms.html", "The tree of symptoms has a page of its own: walk it there"),
    "Map": _link_to("index.html", "All lessons, and the ways through them"),
}
