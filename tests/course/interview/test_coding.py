"""Code rounds: what is drawn, a clock that ends nothing, what is kept, and what the report says."""

from __future__ import annotations

import pytest

from amp_lessons import clinic, exercises
from amp_lessons.course import progress
from amp_lessons.course.interview import code_tasks as tasks
from amp_lessons.course.interview.code_rounds import CodeRound
from tests.cli.interview_hands import said
from tests.course.keep import keep
from tests.forms import forms

SEEDS = range(40)
BEGUN = "2026-11-25T10:00:00+00:00"


def told(report):
    return said(str(report))


def reviewing(**how):
    """A review of a loop, and its bugs in the order of their lines."""
    coding = CodeRound(30, 4, tasks.REVIEW, **how)
    review = coding.task.review
    return coding, review, review.by_line(review.bugs)


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


def test_a_round_goes_on_where_it_was_left(clock):
    first = CodeRound(10, 5, "stable_softmax", clock)
    clock.at += 60
    first.hint()
    half = first.task.page.replace("raise NotImplementedError", "return None")
    first.hand_in_source(half, "mine.py")
    clock.at += 5000  # somebody was away
    again = CodeRound(10, 5, "stable_softmax", clock)
    assert (first.resumed, again.resumed, again.used_s, again.page) == (False, True, 60, half)
    assert (again.kept.hints, len(again.kept.tries), again.left_s) == (1, 1, 540)
    assert CodeRound(10, 6, "stable_softmax", clock).page == first.task.page
    again.end()
    assert CodeRound(10, 5, "stable_softmax", clock).kept.tries == ()


def test_code_that_does_not_run_is_a_try_and_says_why():
    coding = CodeRound(10, 0, "stable_softmax")
    assert "ZeroDivisionError" in coding.hand_in_source("1 / 0", "mine.py")
    assert "SyntaxError" in coding.hand_in_source("def f(:", "mine.py")
    assert "softmax_with_logsumexp is not defined" in coding.hand_in_source("x = 1", "mine.py")
    assert "ends" in coding.hand_in_source("raise KeyError('ends')", "mine.py")
    assert [each.passed for each in coding.kept.tries] == [False] * 4


def test_a_review_tells_what_is_found_but_not_how_much_is_left():
    coding, review, (first, *others) = reviewing()
    assert coding.standing == (
        "Bugs found so far: none. The check has not passed yet. There are bugs that you have not named yet."
    )
    assert "found. 1 bug found so far" in coding.point(review.typed(first))
    assert "no bug is there. 1 bug found so far" in coding.point("1 a")
    with pytest.raises(ValueError, match="such as 12 c"):
        coding.point("something else")
    coding.hand_in_source(coding.task.answer, "mine.py")
    assert f"{review.place(first)}, {first.cause}. The check has passed." in coding.standing
    assert str(len(review.bugs)) not in coding.standing.replace(review.place(first), "")
    assert "1 found; 2 places pointed at" in told(coding.report)
    assert not any(bug.cause in told(coding.report) for bug in others), "the round can go on"
    assert not coding.all_found
    coding.point(", ".join(map(review.typed, review.bugs)))
    assert coding.all_found
    assert reviewing()[0].all_found, "it is kept"


def test_a_line_that_found_one_bug_is_no_miss_of_another_that_stands_there_too():
    coding = CodeRound(10, 11, tasks.REVIEW)
    review = coding.task.review
    bugs = {bug.id: bug for bug in review.bugs}
    found, other = bugs["not_divided"], bugs["model_outside"]
    both = review.mended_at(found) & review.lines(other)
    coding.point(f"{min(both)} {review.typed(found).split()[1]}")
    report = told(coding.end())
    assert f"{found.cause} (found)" in report
    assert f"{other.cause} (not found)" in report


def test_places_are_taken_back_one_by_one_and_only_a_review_has_any():
    coding, _, _ = reviewing()
    coding.point("1 a, 2 b")
    assert coding.take_back() == "Taken back: 2 b."
    assert "1 place pointed at" in str(coding.report)
    assert coding.take_back() == "Taken back: 1 a."
    assert coding.take_back().startswith("There is nothing to take back")
    with pytest.raises(ValueError, match="only in a review"):
        CodeRound(10, 0, "stable_softmax").point("1 a")


def test_hints_of_a_review_lead_from_the_number_to_the_causes():
    coding, review, bugs = reviewing()
    number, places, causes, again = (coding.hint() for _ in range(4))
    assert f"There are {len(bugs)}" in number
    assert all(review.place(bug) in places and bug.cause in causes for bug in bugs)
    assert (again, coding.kept.hints) == (causes, 3)


def test_hints_and_tries_count_for_the_exercise_too():
    coding = CodeRound(45, 0, "loss_scaler")
    assert coding.hint().endswith(exercises.shelf.find("loss_scaler").hints[0])
    coding.hand_in(None)
    record = progress.read().of("loss_scaler")
    assert (record.hints, record.tries) == (1, 1)


def test_a_report_in_each_form(clock, golden):
    coding, review, (first, second, *_) = reviewing(clock=clock)
    coding.hand_in_source(review.without(review.bugs[0]), "mine.py")
    clock.at += 61
    place, letter = review.typed(first).split()
    assert "this is not its cause" in coding.point(
        f"{min(review.lines(second))} {letter}, 1 {letter}, {place} {letter}"
    )
    clock.at += 1800  # the clock shows, and ends nothing
    coding.hand_in_source(coding.task.answer, "mine.py")
    report = coding.end()
    assert report.points == 1.0
    golden("code_report.txt", forms(report))


def test_it_goes_on_where_nothing_can_be_kept(of_a_newer_version):
    coding = CodeRound(10, 0, "stable_softmax")
    coding.hint()
    assert coding.hand_in_source(coding.task.answer, "mine.py").passed
    assert "newer version" in str(coding.report)


def test_only_the_newest_rounds_are_kept():
    keys = [f"stable_softmax {seed} 10" for seed in SEEDS]
    for key in keys:
        keep("keep_round", key, progress.Round(10, BEGUN))
    assert list(progress.read().rounds) == keys[10:]
