"""Routes lead where they say, take as long as they say, and name the next step."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from amp_lessons import quizzes
from amp_lessons.course import progress
from amp_lessons.course.exercises import scores
from amp_lessons.course.lessons import shipped, tasks
from amp_lessons.course.routes import following, minutes, overview
from amp_lessons.course.routes.catalogue import ABLE_TO, FOR_SOME, IN_ORDER, ROUTES, route
from amp_lessons.course.routes.stops import Command, Core, InLesson, Route, anchor
from tests.course.keep import keep

TWO = Route("two", "Two", "to try", (Core("00"), Command("ls", "lists"), InLesson("03", "floor"), Core("01")))
HEADS = shipped.heads()
in_each_lesson = pytest.mark.parametrize("head", HEADS, ids=[head.number for head in HEADS])


def headings_of(file):
    """All headings of a notebook, of any level, found otherwise than by the course."""
    cells = shipped.cells_of(shipped.originals() / file)
    texts = [shipped.source(cell) for cell in cells if cell["cell_type"] == "markdown"]
    return [heading for text in texts for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)]


def links_in(text):
    """The links into lessons, each a file and a heading, or none."""
    return re.findall(r"\]\([\w./]*?(\d\d_\w+\.ipynb)(?:#([^)]+))?\)", text)


@pytest.mark.parametrize("each", ROUTES, ids=lambda each: each.id)
def test_every_link_of_a_route_leads_to_a_heading(each):
    links = links_in(each.steps())
    assert len(links) == sum(not isinstance(stop, Command) for stop in each.stops)
    for file, heading in links:
        assert not heading or heading in map(anchor, headings_of(file)), f"{file} has no {heading!r}"


@in_each_lesson
def test_every_link_into_a_lesson_leads_to_a_heading(head):
    for cell in shipped.cells_of(shipped.originals() / head.file):
        for file, heading in links_in(shipped.source(cell)):
            assert (shipped.originals() / file).exists()
            assert not heading or heading in map(anchor, headings_of(file)), f"{file} has no {heading!r}"


def test_a_route_takes_what_its_stops_take():
    assert all(each.minutes == sum(stop.minutes for stop in each.stops) for each in ROUTES)
    floor = next(each for each in minutes.sections("03") if each.id == "floor")
    assert TWO.minutes == HEADS[0].minutes + floor.minutes + HEADS[1].minutes
    sub = next(each for each in minutes.sections("06") if each.level == 3)
    above = [each for each in minutes.sections("06") if each.level == 2]
    with_it = next(each for each in above if sub in minutes.with_subsections("06", each.id))
    assert InLesson("06", with_it.id).minutes > with_it.minutes


@pytest.mark.parametrize(("id", "most"), [("hour", 60), ("evening", 180), ("weekend", 600)])
def test_a_route_fits_into_the_time_that_it_is_named_after(id, most):
    assert route(id).minutes <= most


def test_the_weekend_is_the_core_of_every_lesson_but_those_for_some_which_are_on_routes_of_theirs():
    assert [head.number for head in HEADS] == list(ABLE_TO)
    assert {stop.lesson for stop in route("weekend").stops} == {*ABLE_TO} - {*FOR_SOME}
    others = [stop for each in ROUTES if each.id != "weekend" for stop in each.stops]
    assert {*FOR_SOME} <= {stop.lesson for stop in others if isinstance(stop, Core)}


def test_the_next_step_is_behind_what_was_done_last():
    def step():
        return str(TWO.next_stop(progress.read()))

    assert step().startswith("lesson 00")
    keep("end_core", "00")
    assert step() == "ls, lists"
    floor = minutes.with_subsections("03", "floor")[0].code
    asked = [each.id for each in quizzes.of_lesson("03") if f'"{each.id}"' in floor]
    for id in asked:
        keep("answer", id, True)
    assert step().startswith("lesson 01"), f"{asked} were answered"
    keep("end_core", "01")
    assert TWO.next_stop(progress.read()) is None
    assert following.said_of(TWO, progress.read()) == "“Two”: you have been through all of it."


def test_anchors_are_those_of_jupyterlab():
    assert anchor("Deeper: And `model.half()`?") == "Deeper:-And-model.half%28%29?"
    assert anchor("The map") == "The-map"


def test_the_map_counts_what_was_done_of_each_lesson():
    asked = quizzes.of_lesson("01")
    keep("answer", asked[0].id, False)
    keep("record_try", "decode_bits", True)
    keep("end_core", "00")
    table = overview.table(progress.read())
    first, second, *_ = table.records
    assert table.caption.startswith(f"1 of {len(HEADS)} cores done; the cores take ")
    assert first["core"].endswith(" min, done")
    assert second["core"].endswith(" min, begun")
    assert second["exercises solved"] == "1 of 2"
    assert second["questions answered"] == f"1 of {len(asked)}"


def test_what_is_asked_about_curves_counts_where_it_is_asked():
    curves = [each.id for each in quizzes.of_lesson("06") if each.id.startswith("curves.")]
    for id in curves[:2]:
        keep("answer", id, True)
    kept = progress.read()
    assert scores.part_of("06", "views.CurveQuiz()", kept).answered == 2
    part = scores.part_of("06", "views.CurveQuiz(range(2, 6))", kept)
    assert (part.questions, part.answered) == (4, 1)


def test_unknown_routes_and_sections_are_refused():
    with pytest.raises(ValueError, match="there is no route 'year'; choose one of hour, evening"):
        route("year")
    with pytest.raises(ValueError, match="lesson 03 has no heading whose cell is called 'roof'"):
        _ = InLesson("03", "roof").minutes


def test_a_route_that_is_gone_meanwhile_counts_as_none():
    keep("choose", "by train")
    assert following.chosen(progress.read()) is IN_ORDER


def asked_in(lesson, cell):
    """The one task of a lesson's cell."""
    (task,) = (each for each in tasks.of_lesson(lesson) if each.cell == cell)
    return task


def do(task, at):
    """Answer what a cell asks, and try its exercises without success, at that hour of a day."""
    at = f"2026-11-28T{at}:00+00:00"
    for id in task.questions:
        keep("answer", id, True)
    for id in task.exercises:
        keep("record_try", id, False)
    content = json.loads(progress.path().read_text("utf-8"))
    for id in task.questions:
        content["answers"][id]["at"] = at
    for id in task.exercises:
        content["exercises"][id]["first_try_at"] = at
    progress.path().write_text(json.dumps(content))


def step(route=IN_ORDER):
    return str(following.next_on(route, progress.read()))


def test_who_stopped_in_a_lesson_goes_on_behind_it_and_then_with_what_was_left_out():
    every = [each for each in tasks.of_lesson("03") if not each.part]
    assert step() == "lesson 00, the question in “Predict”", "nothing was done yet"
    do(every[3], "18:00")
    assert step() == f"lesson 03, the exercise in “{every[4].heading}”"
    do(every[4], "18:10")
    assert step() == f"lesson 03, the exercise in “{every[4].heading}”", "it is not solved"
    keep("record_try", every[4].exercises[0], True)
    assert step() == f"lesson 03, the question in “{every[5].heading}”"
    for number, each in enumerate(every[5:-1]):
        do(each, f"19:{number:02}")
    assert step() == f"lesson 03, the question in “{every[0].heading}”"
    for number, each in enumerate(every[:3]):
        do(each, f"20:{number:02}")
    assert step() == "lesson 03, the cell that ends its core"
    keep("end_core", "03")
    assert step() == "lesson 04, fp32 against AMP (85 minutes)"
    assert step(route("evening")) == step(), "and so says a route with both"


def test_what_was_left_out_comes_before_the_end_of_the_core():
    *asked, end = [each for each in tasks.of_lesson("00") if not each.part]
    assert end.ends_core
    do(asked[-1], "18:00")
    assert step() == f"lesson 00, the question in “{asked[0].heading}”"


def test_a_route_without_the_lesson_where_somebody_stopped_goes_its_own_way():
    do(tasks.of_lesson("01")[0], "18:00")
    assert step(route("evening")) == "lesson 00, the question in “Predict”"
    assert step(route("nan")) == "lesson 06, “From a symptom to its cause”"


def test_behind_the_end_of_a_route_comes_the_order_of_the_lessons():
    keep("choose", "evening")
    for number in ("00", "03", "04"):
        keep("end_core", number)
    said = following.said_of(route("evening"), progress.read())
    assert said.startswith("“I have an evening”: you have been through all of it. Next: lesson 05, Speed")
    assert str(following.next_step(progress.read())) in said


def test_the_next_morning_says_where_somebody_stopped_and_what_is_next(monkeypatch):
    now = datetime(2026, 11, 29, 8, tzinfo=timezone.utc)
    monkeypatch.setattr(progress, "utc_now", lambda: now)
    assert following.of_the_morning(progress.read()) == "", "nothing was done"
    do(asked_in("03", "live-quiz"), "20:00")
    said = following.of_the_morning(progress.read(), linked=True)
    assert said.startswith("Yesterday you stopped in [lesson 03, “Move the scale”](03_loss_")
    assert "**Next:** [lesson 03, the exercise in “Exercise: compute the largest safe scale”](" in said
    assert said.endswith("(03_loss_scaling.ipynb#cell-id=largest-safe-scale-card).")
    now += timedelta(days=3)
    said = following.of_the_morning(progress.read())
    assert said.startswith("On 2026-11-28 you stopped in lesson 03, “Move")
    now = datetime(2026, 11, 28, 23, 30, tzinfo=timezone.utc)
    assert following.of_the_morning(progress.read()) == "", "that was just now"


def test_where_somebody_stopped_is_found_without_pytorch():
    asks = """
import sys
from amp_lessons.course import progress
from amp_lessons.course.routes import following
following.of_the_morning(progress.read())
sys.exit("torch" in sys.modules)
"""
    do(asked_in("03", "hurt-quiz"), "20:00")
    assert subprocess.run([sys.executable, "-c", asks], check=False).returncode == 0
