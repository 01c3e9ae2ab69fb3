"""The map says what was done and what comes next; stored, it is alike for all."""

from __future__ import annotations

import pytest

from amp_lessons import views
from amp_lessons.keeping import cores
from amp_lessons.lessons import shipped
from amp_lessons.quizzes import of_lesson
from amp_lessons.routes.catalogue import ROUTES
from tests.views.test_lesson_end import answer

LESSONS = len(shipped.heads())


def test_it_counts_while_it_stands_there_and_names_the_next_step():
    shown = views.Map()
    assert f"0 of {LESSONS} cores done" in shown.said
    assert "Next on “I have one hour”: lesson 00, Start here" in shown.said
    cores.record("00")
    answer(of_lesson("01")[0].id, True)
    assert f"1 of {LESSONS} cores done" in shown.said
    assert "Next on “I have one hour”: lesson 01" in shown.said
    assert f"1 of {LESSONS} cores done" in shown.children[0].value


def test_another_route_is_chosen_by_its_control():
    shown = views.Map()
    for each in ROUTES:
        shown.choose(each.title)
        assert f"Next on “{each.title}”: {each.stops[0]}" in shown.said
        assert str(each.stops[0]) in shown.children[2].value
    with pytest.raises(ValueError, match="no route is called 'hour'; there are: I have one hour"):
        shown.choose("hour")


def test_stored_it_does_not_say_what_this_learner_did():
    before = views.Map()
    stood_in = before.stand_in()
    cores.record("00")
    after = views.Map()
    assert after._repr_mimebundle_()["text/markdown"] == before._repr_mimebundle_()["text/markdown"]
    assert f"0 of {LESSONS} cores done" in after._repr_mimebundle_()["text/plain"]
    assert after.stand_in() == stood_in


def test_it_stands_where_progress_cannot_be_read(monkeypatch):
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    assert "set AMP_LESSONS_HOME to an absolute path" in views.Map().said


def test_the_route_that_was_chosen_is_kept_for_the_next_map_and_for_the_ends_of_lessons():
    assert "**Next: [lesson 01" in views.LessonEnd("00").way_on()
    views.Map().choose("I have an evening")
    assert "Next on “I have an evening”: lesson 00" in views.Map().said
    way_on = views.LessonEnd("00").way_on()
    assert "**Next on “I have an evening”:** [lesson 03](03_loss_scaling.ipynb)" in way_on
    assert "**Next: [lesson 03" in views.LessonEnd("02").way_on(), "lesson 02 is not on this route"
    last = views.LessonEnd("04").way_on()
    assert last.startswith("**That was “I have an evening”, to its end.** **Next: [lesson 05")


def test_a_choice_that_cannot_be_kept_holds_all_the_same(monkeypatch, tmp_path):
    shown = views.Map()
    (tmp_path / "file").touch()
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file" / "below"))
    shown.choose("I have an evening")
    assert "Next on “I have an evening”" in shown.said
    assert str(tmp_path / "file" / "below") in shown.said
