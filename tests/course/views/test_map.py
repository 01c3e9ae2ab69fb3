"""The map says what was done and what comes next, with links."""

from __future__ import annotations

from amp_lessons import views
from amp_lessons.cli import cli
from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped
from amp_lessons.course.quizzes import of_lesson
from amp_lessons.course.routes import following
from amp_lessons.course.routes.catalogue import ROUTES
from amp_lessons.course.views.base import shown
from tests.course.keep import keep
from tests.course.views.test_lesson_end import answer

LESSONS = len(shipped.heads())


def test_it_counts_while_it_stands_there_and_names_the_next_step(monkeypatch):
    published = []

    def note(data, name=None, *, anew=False):
        published.append((data, anew))

    monkeypatch.setattr(shown, "publish", note)
    page = views.Map()
    page._ipython_display_()
    assert " 0 of " not in page.said, "whoever begins has not failed twelve times"
    assert "(00_start_here.ipynb)**: say what" in page.said
    assert f"*15 + 15 minutes, {len(of_lesson('00'))} questions* ← next" in page.said
    assert page.said.count("← next") == page.said.split("**[01")[0].count("← next") == 1
    assert "- **[02 Autocast](02_autocast.ipynb)**: find out which dtype" in page.said
    keep("end_core", "00")
    answer(of_lesson("01")[0].id, True)
    assert (page.said, True) in [(data.get("text/markdown"), anew) for data, anew in published]
    assert f"**1 of {LESSONS} cores done" in page.said
    at = progress.read().last_at(of_lesson("01")[0].id).astimezone()
    assert f"(counted up to what you did on {at:%Y-%m-%d at %H:%M})" in page.said, "it may be stored as it is"
    assert "Next: lesson 01, the question in" in page.children[1].value
    assert "Nothing is due for repetition now." in page.children[1].value
    assert "due for repetition" not in page.said + str(page.stand_in()), (
        "stored, it would be said of another day"
    )
    page.choose("I have one hour")
    assert "1. ✓ [00, *Start here*](00_start_here.ipynb)\n1. [01, *" in page.said
    assert "Next on “I have one hour”: lesson 01" in page.children[1].value


def test_another_route_is_chosen_by_its_control():
    page = views.Map()
    for each in ROUTES:
        page.choose(each.title)
        assert page.said.startswith(f"**{each.title}**, {each.to}")
        assert f"Next on “{each.title}”: {str(each.stops[0]).partition(',')[0]}" in page.children[1].value
        assert [stop.as_markdown("") in page.said for stop in each.stops] == [True] * len(each.stops)


def test_the_route_that_was_chosen_is_kept_for_the_next_map_and_for_the_ends_of_lessons():
    keep("end_core", "00")
    assert "**Next:** [lesson 01 · Number formats](01_number" in views.LessonEnd("00").way_on()
    views.Map().choose("I have an evening")
    assert views.Map().said.startswith("**I have an evening**")
    three = "**Next on “I have an evening”:** [lesson 03 · Loss scaling](03_loss_scaling.ipynb)"
    assert views.LessonEnd("00").way_on().startswith(three)
    assert views.LessonEnd("02").way_on().startswith(f"{three} (55 minutes) · [back"), "it is the next, too"
    assert f"{three} (55 minutes) · or go on with [lesson 02 · Auto" in views.LessonEnd("01").way_on()
    keep("end_core", "04")
    last = views.LessonEnd("04").way_on()
    assert last.startswith("“I have an evening”: you have been through all of it. **Next:** [lesson 05")


def test_map_ends_of_lessons_and_progress_name_one_next_step(capsys):
    answer(of_lesson("03")[2].id, True)
    one = str(following.next_step(progress.read()))
    assert one in views.Map().children[1].value
    assert one in views.LessonEnd("03").way_on()
    capsys.readouterr()
    assert cli.main(["progress"]) == 0
    out = capsys.readouterr().out
    assert f"Next: {one}." in out
    assert out.lower().count("next") == 1


def test_a_choice_that_cannot_be_kept_holds_all_the_same(monkeypatch, tmp_path):
    page = views.Map()
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    assert "set AMP_LESSONS_HOME to an absolute path" in views.Map().said
    (tmp_path / "file").touch()
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file" / "below"))
    page.choose("I have an evening")
    assert page.said.startswith("**I have an evening**")
    assert str(tmp_path / "file" / "below") in page.said
