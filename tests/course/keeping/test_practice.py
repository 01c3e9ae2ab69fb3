"""What was practised survives kills and damage, belongs to one learner, and comes back when FSRS says."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest

from amp_lessons.course.keeping import practice, progress, schedule
from amp_lessons.course.keeping.practice import Review
from amp_lessons.course.keeping.progress import ProgressError

START = datetime(2022, 11, 29, 12, 30, tzinfo=timezone.utc)


def reviews(grades, gaps=None):
    """Grade at the moment at which it falls due, or after so many days."""
    made, at = [], START
    for i, grade in enumerate(grades):
        at = at + timedelta(days=gaps[i]) if gaps else (schedule.due_at(made) or START)
        made.append(Review(at.isoformat(), grade))
    return made


def intervals(made, **how):
    due = [schedule.due_at(made[: i + 1], **how) for i in range(len(made))]
    return [(when - review.moment).days for when, review in zip(due, made, strict=True)]


def test_intervals_are_those_that_fsrs_publishes():
    # test_review_card in py-fsrs 6, tests/test_basic.py; the same numbers stand in ts-fsrs, FSRS-6.test.ts
    grades = ["good"] * 6 + ["again"] * 2 + ["good"] * 5
    assert intervals(reviews(grades)) == [0, 2, 11, 46, 163, 498, 0, 0, 2, 4, 7, 12, 21]


def test_the_first_minutes_are_those_that_fsrs_publishes():
    # test_good_, test_again_, test_hard_ and test_easy_learning_steps in py-fsrs, tests/test_basic.py
    def seconds(grade):
        return (schedule.due_at(reviews([grade])) - START).total_seconds()

    assert [seconds(grade) for grade in ("again", "hard", "good")] == [60, 330, 600]
    assert seconds("easy") >= 24 * 3600


def test_what_takes_long_comes_back_after_days_only():
    made = reviews(["good", "again", "hard"], gaps=[0, 2, 1])
    assert intervals(made, whole_days=True)[0] == 2
    assert all(days >= 1 for days in intervals(made, whole_days=True))


def test_the_order_in_which_reviews_are_kept_does_not_matter():
    made = reviews(["good"] * 4)
    assert schedule.due_at(made[::-1]) == schedule.due_at(made)
    assert schedule.due_at([]) is None


def test_nothing_is_practised_at_first(progress_home):
    assert practice.read().reviews == {}
    assert practice.read().of("loss_scaling.why") == ()
    assert not progress_home.exists(), "reading must not write"


def test_what_is_recorded_is_read_in_order():
    for grade in ("again", "good"):
        assert practice.record("loss_scaling.why", grade) == ""
    kept = practice.read().of("loss_scaling.why")
    assert [review.grade for review in kept] == ["again", "good"]
    assert abs((kept[0].moment - datetime.now(timezone.utc)).total_seconds()) < 60
    with pytest.raises(ValueError, match="again, hard, good, easy, not 'perfect'"):
        practice.record("loss_scaling.why", "perfect")


def test_the_last_review_is_taken_back_and_nothing_else():
    practice.record("loss_scaling.why", "good")
    practice.record("loss_scaling.why", "again", in_mock=True)
    practice.record("loss_scaling.bf16", "easy")
    assert [review.in_mock for review in practice.read().of("loss_scaling.why")] == [False, True]
    practice.take_back("loss_scaling.why")
    practice.take_back("loss_scaling.bf16")
    practice.take_back("nothing.of_the_kind")
    assert {id: [each.grade for each in kept] for id, kept in practice.read().reviews.items()} == {
        "loss_scaling.why": ["good"]
    }


def test_what_older_and_later_versions_wrote_is_read(progress_home):
    progress_home.mkdir()
    at = "2026-03-02T09:00:00+00:00"
    old, later = {"at": at, "grade": "good"}, {"at": at, "grade": "hard", "where": "on paper"}
    kept = {"schema": 1, "exercises": {}, "practice": {"loss_scaling.why": [old, later]}}
    progress.path().write_text(json.dumps(kept))
    found = practice.read()
    assert found.message == ""
    assert found.of("loss_scaling.why") == (Review(at, "good"), Review(at, "hard"))
    practice.record("loss_scaling.bf16", "good")
    written = json.loads(progress.path().read_text())["practice"]
    assert written["loss_scaling.why"] == [old, later], "untouched"
    assert set(written["loss_scaling.bf16"][0]) == {"at", "grade"}, "what every version reads"


def test_it_stands_in_the_progress_file_and_neither_disturbs_the_other(progress_home):
    old = {"schema": 1, "exercises": {"a": {"tries": 2}}, "interview": {"due": [1, 2]}}
    progress_home.mkdir()
    progress.path().write_text(json.dumps(old))
    practice.record("loss_scaling.why", "good", START)
    progress.record_try("b", True)
    kept = json.loads(progress.path().read_text())
    assert kept["practice"] == {"loss_scaling.why": [{"at": "2022-11-29T12:30:00+00:00", "grade": "good"}]}
    assert kept["exercises"]["a"] == old["exercises"]["a"]
    assert kept["interview"] == old["interview"]
    assert progress.read().of("b").solved


def test_two_learners_never_mix(monkeypatch, tmp_path):
    for learner, grade in (("ada", "good"), ("bob", "again"), ("ada", "easy")):
        monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / learner))
        practice.record("loss_scaling.why", grade)
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "ada"))
    assert [review.grade for review in practice.read().of("loss_scaling.why")] == ["good", "easy"]
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "bob"))
    assert [review.grade for review in practice.read().of("loss_scaling.why")] == ["again"]


DAMAGES = [
    [1],
    7,
    {"a": 3},
    {"a": [3]},
    {"a": [{"at": "2022-11-29T12:30:00+00:00"}]},
    {"a": [{"at": "2022-11-29T12:30:00+00:00", "grade": "superb"}]},
    {"a": [{"at": "2022-11-29T12:30:00", "grade": "good"}]},
    {"a": [{"at": "yesterday", "grade": "good"}]},
    {"a": [{"at": 7, "grade": "good"}]},
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("act", [practice.read, lambda: practice.record("b", "good")])
def test_a_damaged_part_is_copied_and_named_and_exercises_stay(damage, act):
    progress.record_try("a", True)
    content = json.loads(progress.path().read_text())
    progress.path().write_text(json.dumps({**content, "practice": damage}))
    before = progress.path().read_text()
    said = act()
    (copy,) = progress.damaged_files()
    assert str(copy) in (said if isinstance(said, str) else said.message)
    assert copy.read_text() == before
    assert progress.read().of("a").solved
    assert practice.record("a", "good") == ""


def test_a_file_that_is_damaged_as_a_whole_is_named(progress_home):
    progress_home.mkdir()
    progress.path().write_text("{")
    assert "progress.damaged-" in practice.read().message


def test_a_newer_file_is_left_alone(progress_home):
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    for act in (practice.read, lambda: practice.record("a", "good")):
        with pytest.raises(ProgressError, match="newer version"):
            act()


def test_what_can_only_be_read_is_read(progress_home):
    practice.record("a", "good", START)
    (progress_home / "progress.lock").unlink(missing_ok=True)
    (progress_home / "progress.lock").mkdir()  # cannot be opened as a file, also by root
    assert practice.read().of("a")[0].moment == START
    with pytest.raises(ProgressError, match="cannot be saved"):
        practice.record("a", "good")


def test_forgetting_all_forgets_what_was_practised():
    practice.record("a", "good")
    progress.reset("a")
    assert practice.read().of("a")
    progress.reset()
    assert practice.read().reviews == {}


WRITER = """
import sys
from amp_lessons.course.keeping import practice
for i in range(100_000):
    practice.record(f"{sys.argv[1]}{i}", "good")
    print(i, flush=True)
"""


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(progress_home):
    draw = random.Random(0)
    for turn in range(4):
        command = [sys.executable, "-c", WRITER, f"turn{turn}-"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        process.stdout.readline()  # it has begun to write
        time.sleep(draw.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        acknowledged = [0, *(int(line) for line in process.communicate()[0].splitlines() if line.strip())]
        found = practice.read()
        assert found.message == ""
        assert {f"turn{turn}-{i}" for i in acknowledged} <= set(found.reviews)
    assert not list(progress_home.glob("*damaged*"))
