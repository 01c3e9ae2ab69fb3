"""The strip at a lesson's end says what was done and what is next; stored, it is alike for all."""

from __future__ import annotations

import json
import weakref
from pathlib import Path

import pytest

from amp_lessons import exercises, views
from amp_lessons.course import progress
from amp_lessons.course.exercises import scores
from amp_lessons.course.lessons import shipped
from amp_lessons.course.lessons.shipped import parted
from amp_lessons.course.quizzes import Choice, Question, of_lesson, question
from amp_lessons.course.views.widgets import counting
from tests.course.keep import keep
from tests.notebook_rules import source

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))


def answer(id, rightly):
    quiz = views.Quiz(id)
    quiz.choose(next("abcd"[i] for i, each in enumerate(question(id).choices) if each.right == rightly))


def test_it_counts_first_answers_and_solved_exercises_while_it_stands_there():
    strip = views.LessonEnd("01")
    core = shipped.code_of(shipped.parts_of("01")[0])
    asked = [each.id for each in of_lesson("01") if f'"{each.id}"' in core]
    assert f"0 of {len(asked)} questions right at the first answer, {len(asked)} not answered" in strip.said
    answer(asked[0], True)
    answer(asked[1], False)
    answer(asked[1], True)
    assert f"1 of {len(asked)} questions right" in strip.said
    assert f"{len(asked) - 2} not answered yet" in strip.said
    views.check("decode_bits", exercises.catalog()[0].solution)
    assert "1 of 1 exercise solved" in strip.said
    assert "1 of 1" in strip.children[0].value


def test_of_a_curve_the_first_answer_is_kept_and_of_a_drawn_question_none():
    strip = views.LessonEnd("06")
    curves = views.CurveQuiz()
    for number in (1, 7):  # one of the core, one of a deeper section
        curves.number = number
        curves.choose("a")
    found = scores.score("06", progress.read())
    assert (found.core.answered, found.deeper.answered) == (1, 1)
    assert f"{found.core.unanswered} not answered yet" in strip.said
    drawn = views.Quiz(Question("drawn", "2 + 2?", (Choice("4", "Count.", right=True), Choice("3", "No."))))
    drawn.choose("a")
    assert len(json.loads(progress.path().read_text())["answers"]) == 2


def test_what_is_due_is_named_of_every_lesson(monkeypatch):
    keep("record_try", "loss_scaler", True)
    keep("review", "loss_scaling.why", "again")
    assert "Nothing is due" in views.LessonEnd("01").said
    later = progress.utc_now().replace(year=progress.utc_now().year + 1)
    monkeypatch.setattr(progress, "utc_now", lambda: later)
    said = views.LessonEnd("01").said
    title = next(each.title for each in exercises.catalog() if each.id == "loss_scaler")
    assert f"Due for repetition: {title} (lesson 03) and 1 interview card (lesson 10)." in said


def test_stored_it_does_not_say_what_this_learner_did_and_it_stands_where_that_cannot_be_read(monkeypatch):
    before = views.LessonEnd("01")._repr_mimebundle_()
    answer(of_lesson("01")[0].id, True)
    after = views.LessonEnd("01")._repr_mimebundle_()
    texts = ("text/plain", "text/markdown")
    assert {kind: after[kind] for kind in texts} == {kind: before[kind] for kind in texts}
    assert "text/html" not in after
    score = scores.score("01", progress.read())
    for part in (score.core, score.deeper):
        assert f"{part.questions} questions" in after["text/plain"]
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    assert "set AMP_LESSONS_HOME to an absolute path" in views.LessonEnd("03").said
    answer(of_lesson("03")[0].id, True)


def test_each_core_ends_with_its_strip():
    for path in NOTEBOOKS:
        strip, _ = parted(json.loads(path.read_text("utf-8"))["cells"])[0][-2:]  # below it is text
        assert strip["id"] == "lesson-end"
        assert source(strip).startswith(f'views.LessonEnd("{path.name[:2]}")'), path.name


def test_each_lesson_leads_to_the_next_and_back():
    for path, following in zip(NOTEBOOKS, [*NOTEBOOKS[1:], None], strict=True):
        way_on = views.LessonEnd(path.name[:2]).way_on()
        assert ("00_start_here.ipynb#The-map" in way_on) == (path != NOTEBOOKS[0])
        if following is None:
            assert "That was the last lesson" in way_on
        else:
            title = source(json.loads(following.read_text("utf-8"))["cells"][0]).splitlines()[0]
            assert f"**Next: [lesson {title.removeprefix('# ')}]({following.name})**" in way_on
    answer(of_lesson("03")[0].id, True)
    behind = "or go on with [lesson 04 · fp32 against AMP](04_fp32_vs_amp.ipynb)"
    assert behind in views.LessonEnd("03").way_on(), "whoever leaves questions out gets there all the same"
    keep("end_core", "04")
    answer(of_lesson("03")[1].id, True)  # or the next step would be lesson 05, once a second has passed
    on = views.LessonEnd("03").way_on()
    assert "or go on with [lesson 05 · Speed and memory" in on, "what is done already is no way on"


TWO_PARTS = {
    "objective": "# 03 · Scaling\n\n**5 minutes** for the core; **10 more** stand below it.",
    "quiz": 'views.Quiz("scaling.floor")',
    "card": 'views.ExerciseCard("largest_safe_scale")',
    "lesson-end": 'views.LessonEnd("03")',
    "why": "## Deeper: why",
    "deeper-quiz": 'views.Quiz("scaling.growth")',
    "deeper-card": 'views.ExerciseCard("loss_scaler")',
}


@pytest.fixture
def in_two_parts(tmp_path, monkeypatch):
    """Lesson 03 with one question and one exercise in its core, and all else deeper."""
    kinds = {True: "markdown", False: "code"}
    cells = [{"cell_type": kinds[text[0] == "#"], "id": id, "source": text} for id, text in TWO_PARTS.items()]
    for path in NOTEBOOKS:
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "03_loss_scaling.ipynb").unlink()
    (tmp_path / "03_loss_scaling.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(shipped, "INSTALLED", tmp_path)
    monkeypatch.setattr(counting, "_OPEN", weakref.WeakSet())  # strips of other tests count too


def test_a_core_is_done_when_its_questions_are_answered_and_its_exercises_tried(in_two_parts):
    strip = views.LessonEnd("03")
    assert "0 of 1 exercise solved. 0 of 1 questions right at the first answer" in strip.said
    assert "5 minutes planned for the core of this lesson." in strip.said
    assert "every exercise tried: 1 exercise and 1 question to go, the first at the lesson's" in strip.said
    assert "another 10 minutes, 0 of 1 exercise solved, 0 of 1 question answered." in strip.said
    assert "What is folded below it has 1 exercise and 1 question." in strip._holds()
    keep("record_try", "largest_safe_scale", False)
    answer("scaling.floor", False)
    left = "You have been through the core of this lesson; not right yet: {}."
    assert left.format("1 exercise and 1 question") in strip.said
    there = "**Not right yet:** [the lesson's beginning](03_loss_scaling.ipynb#cell-id={}). The course does"
    assert strip.linked().startswith(there.format("quiz"))
    answer("scaling.floor", True)
    assert left.format("1 exercise") in strip.said
    assert strip.linked().startswith(there.format("card"))
    keep("record_try", "largest_safe_scale", True)
    strip.refresh()
    assert "0 of 1 questions right at the first answer" in strip.said
    assert "You have done the core of this lesson." in strip.said
    assert strip.linked() == strip.way_on()
    assert list(progress.read().cores) == ["03"]


def test_a_core_that_was_not_run_to_its_end_is_not_done(in_two_parts):
    keep("record_try", "largest_safe_scale", True)
    answer("scaling.floor", True)
    assert progress.read().cores == {}
    assert "the cell that ends its core" not in views.LessonEnd("03").way_on(), "that was this one"
    when = progress.read().cores
    views.LessonEnd("03").refresh()
    assert progress.read().cores == when != {}


def test_a_lesson_asks_the_questions_that_it_counts():
    for path in NOTEBOOKS:
        text = path.read_text("utf-8")
        asked = [each.id for each in of_lesson(path.name[:2]) if f'views.Quiz(\\"{each.id}\\")' in text]
        curves = [each.id for each in of_lesson(path.name[:2]) if each.id.startswith("curves.")]
        assert len(asked) + len(curves) == len(of_lesson(path.name[:2])), path.name
        assert bool(curves) == ("views.CurveQuiz(" in text)
