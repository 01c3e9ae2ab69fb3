"""Routes lead where they say, take as long as they say, and name the next step."""

from __future__ import annotations

import re

import pytest

from amp_lessons import quizzes
from amp_lessons.course import progress
from amp_lessons.course.exercises import scores
from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes import minutes, overview
from amp_lessons.course.routes.catalogue import ABLE_TO, FOR_SOME, ROUTES, route
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


def test_the_weekend_is_the_core_of_every_lesson_but_those_for_some():
    assert [head.number for head in HEADS] == list(ABLE_TO)
    assert {stop.lesson for stop in route("weekend").stops} == {*ABLE_TO} - {*FOR_SOME}


def test_what_is_for_some_is_on_a_route_of_theirs():
    others = [each for each in ROUTES if each.id != "weekend"]
    on_a_route = {stop.lesson for each in others for stop in each.stops if isinstance(stop, Core)}
    assert {*FOR_SOME} <= on_a_route


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
    assert overview.next_step(TWO, progress.read()) == "“Two”: you have been through all of it."


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
    assert table.caption.startswith(f"1 of {len(HEADS)} cores done; all cores take ")
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
    assert overview.chosen(progress.read()) is None
