"""Code rounds: what is drawn, a clock that ends nothing, what is kept, and what the report says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amp_lessons import clinic, exercises
from amp_lessons.course import progress
from amp_lessons.course.interview import code_tasks as tasks
from amp_lessons.course.interview.code_rounds import CodeRound
from tests.course.interview.test_mock import Clock
from tests.course.keep import keep
from tests.forms import forms

SEEDS = range(40)


@pytest.fixture
def clock():
    return Clock()


def said(report):
    return " ".join(str(report).split())


@pytest.mark.parametrize("minutes", tasks.TASKS)
def test_a_seed_draws_one_task_of_those_that_fit_and_forty_draw_all(minutes):
    drawn = [tasks.task(minutes, seed).id for seed in SEEDS]
    assert drawn == [tasks.task(minutes, seed).id for seed in SEEDS]
    assert set(drawn) == set(tasks.TASKS[minutes])


def test_what_no_round_has_is_refused():
    with pytest.raises(ValueError, match="a round has 10, 30, 45 minutes"):
        tasks.task(20, 0)
    with pytest.raises(TypeError, match="seed is a whole number"):
        tasks.task(10, 1.5)
    with pytest.raises(ValueError, match="did you mean stable_softmax"):
        tasks.task(10, 0, "stable_sotfmax")


def test_what_interviews_alone_ask_for_counts_in_no_lesson():
    own = {each.id for each in exercises.shelf.interview_tasks()}
    assert own <= set(tasks.known_tasks()), "a task that no round asks for is there for nobody"
    assert not own & {each.id for each in exercises.catalog()}
    assert exercises.check("stable_softmax", exercises.solution("stable_softmax").function).passed
    assert exercises.overview().solved == 0
    assert exercises.due_for_repetition() == ()


@pytest.mark.few
@pytest.mark.parametrize("id", tasks.known_tasks())
def test_the_page_does_not_pass_and_the_answer_does(id, tmp_path):
    coding = CodeRound(tasks.minutes_for(id), 3, id)
    file = tmp_path / "mine.py"
    for source, passes in ((coding.task.page, False), (coding.task.answer, True)):
        file.write_text(source)
        report = coding.hand_in_source(source, str(file))
        assert isinstance(report, exercises.Report)
        assert report.passed == passes, report
        assert report.attempted == passes, "nobody has written a line of the page"
    assert len(coding.kept.tries) == 1


@pytest.mark.parametrize("seed", range(len(clinic.patients())))
def test_nobody_names_the_patient_and_its_answer_keeps_what_it_defines(seed):
    coding = CodeRound(30, seed, tasks.DEBUG)
    name = coding.task.exercise.id.removeprefix("heal_")
    assert name not in coding.task.page
    for source in (coding.task.page, coding.task.answer):
        namespace = {}
        exec(source, namespace)
        assert coding.task.defined_in(namespace)


def test_the_clock_shows_and_ends_nothing(clock):
    coding = CodeRound(10, 0, "stable_softmax", clock)
    assert coding.left_s == 600
    clock.at += 700
    assert coding.left_s == -100
    assert coding.hand_in_source(coding.task.answer, "mine.py").passed
    assert "11:40 of 10 minutes, 1:40 too many" in said(coding.end())


def test_a_round_goes_on_where_it_was_left(clock):
    first = CodeRound(10, 5, "stable_softmax", clock)
    assert not first.resumed
    clock.at += 60
    first.hint()
    half = first.task.page.replace("raise NotImplementedError", "return None")
    first.hand_in_source(half, "mine.py")
    clock.at += 5000  # somebody was away
    again = CodeRound(10, 5, "stable_softmax", clock)
    assert again.resumed
    assert (again.kept.hints, len(again.kept.tries)) == (1, 1)
    assert again.used_s == 60
    assert again.page == half
    assert CodeRound(10, 6, "stable_softmax", clock).page == first.task.page
    again.end()
    anew = CodeRound(10, 5, "stable_softmax", clock)
    assert not anew.resumed
    assert anew.kept.tries == ()


def test_code_that_does_not_run_is_a_try_and_says_why():
    coding = CodeRound(10, 0, "stable_softmax")
    assert "ZeroDivisionError" in coding.hand_in_source("1 / 0", "mine.py")
    assert "SyntaxError" in coding.hand_in_source("def f(:", "mine.py")
    assert "softmax_with_logsumexp is not defined" in coding.hand_in_source("x = 1", "mine.py")
    assert "ends" in coding.hand_in_source("raise KeyError('ends')", "mine.py")
    assert [each.passed for each in coding.kept.tries] == [False] * 4


def test_a_review_is_pointed_at_then_mended_and_tells_what_is_found_but_not_how_much_is_left(clock):
    coding = CodeRound(30, 4, tasks.REVIEW, clock)
    review = coding.task.review
    first, second, third, *others = review.by_line(review.bugs)
    letter = review.typed(first).split()[1]
    assert coding.standing.startswith("Bugs found so far: none. The check has not passed yet.")
    assert "found. 1 bug found so far" in coding.point(review.typed(first))
    wrong = coding.point(f"{min(review.lines(second))} {letter}, 1 {letter}")
    assert "this is not its cause" in wrong
    assert "Line 1: no bug is there" in wrong
    with pytest.raises(ValueError, match="such as 12 c"):
        coding.point("something else")
    coding.hand_in_source(coding.task.answer, "mine.py")
    found = f"Bugs found so far: {review.place(first)}, {first.cause}. The check has passed."
    assert found in coding.standing
    assert str(len(review.bugs)) not in coding.standing.replace(review.place(first), "")
    assert not coding.all_found
    assert "1 found; 3 places pointed at" in said(coding.report)
    assert first.cause in said(coding.report)
    assert not any(bug.cause in said(coding.report) for bug in (second, third, *others)), (
        "the round can go on"
    )
    ended = said(replace(coding.report, kept=replace(coding.kept, ended_at="now")))
    assert f"1 of {len(review.bugs)} found; 3 places pointed at" in ended
    assert f"{first.cause} (found)" in ended
    assert f"{second.cause} (its line was named, not its cause)" in ended
    assert f"{third.cause} (not found)" in ended
    coding.point(", ".join(map(review.typed, review.bugs)))
    assert coding.all_found
    assert CodeRound(30, 4, tasks.REVIEW, clock).all_found, "it is kept"


def test_a_line_that_found_one_bug_is_no_miss_of_another_that_stands_there_too():
    coding = CodeRound(10, 11, tasks.REVIEW)
    review = coding.task.review
    bugs = {bug.id: bug for bug in review.bugs}
    found, other = bugs["not_divided"], bugs["model_outside"]
    both = review.mended_at(found) & review.lines(other)
    coding.point(f"{min(both)} {review.typed(found).split()[1]}")
    report = said(coding.end())
    assert f"{found.cause} (found)" in report
    assert f"{other.cause} (not found)" in report


def test_places_are_taken_back_one_by_one_and_only_a_review_has_any():
    coding = CodeRound(30, 4, tasks.REVIEW)
    coding.point("1 a, 2 b")
    assert coding.take_back() == "Taken back: 2 b."
    assert "1 place pointed at" in str(coding.report)
    assert coding.take_back() == "Taken back: 1 a."
    assert coding.take_back().startswith("There is nothing to take back")
    with pytest.raises(ValueError, match="only in a review"):
        CodeRound(10, 0, "stable_softmax").point("1 a")


def test_hints_of_a_review_lead_from_the_number_to_the_causes():
    coding = CodeRound(30, 4, tasks.REVIEW)
    review = coding.task.review
    said = [coding.hint() for _ in range(4)]
    assert f"There are {len(review.bugs)}" in said[0]
    for bug in review.bugs:
        assert review.place(bug) in said[1]
        assert bug.cause in said[2]
    assert said[3] == said[2]
    assert coding.kept.hints == 3


def test_hints_and_tries_count_for_the_exercise_too():
    coding = CodeRound(45, 0, "loss_scaler")
    assert coding.hint().endswith(exercises.shelf.find("loss_scaler").hints[0])
    coding.hand_in(None)
    record = progress.read().of("loss_scaler")
    assert (record.hints, record.tries) == (1, 1)


def test_a_report_in_each_form(clock, golden):
    coding = CodeRound(30, 4, tasks.REVIEW, clock)
    review = coding.task.review
    coding.hand_in_source(review.without(review.bugs[0]), "mine.py")
    clock.at += 61
    coding.point(f"{review.typed(review.bugs[1])}, 1 a")
    coding.hand_in_source(coding.task.answer, "mine.py")
    report = coding.end()
    assert report.points == 1.0
    golden("code_report.txt", forms(report))


def test_it_goes_on_where_nothing_can_be_kept(progress_home):
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    coding = CodeRound(10, 0, "stable_softmax")
    coding.hint()
    assert coding.hand_in_source(coding.task.answer, "mine.py").passed
    assert "newer version" in str(coding.report)


def test_only_the_newest_rounds_are_kept():
    for seed in range(40):
        keep("keep_round", f"stable_softmax {seed} 10", progress.Round(10, "2026-11-25T10:00:00+00:00"))
    assert list(progress.read().rounds) == [f"stable_softmax {seed} 10" for seed in range(10, 40)]
