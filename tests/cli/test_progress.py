"""``amp-lessons progress``."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from amp_lessons import exercises, quizzes
from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes.catalogue import ROUTES
from tests.course.keep import keep


@pytest.fixture
def solved():
    keep("record_try", "decode_bits", False)
    keep("record_try", "decode_bits", True)


def test_shows_what_was_solved_answered_and_read_and_where_that_is_kept(solved, session):
    of_start, of_scaling = quizzes.of_lesson("00"), quizzes.of_lesson("03")
    every = len(quizzes.questions())
    assert f"0 of {every} questions answered.\n" in session("progress")
    for question, right in ((of_scaling[0], True), (of_scaling[1], False), (of_start[0], True)):
        keep("answer", question.id, right)
    keep("end_core", "00")
    out = session("progress")
    assert f"1 of {len(exercises.catalog())} exercises solved\n" in out
    assert "2 tries" in out
    assert "kept in HERE/progress/progress.json" in out
    assert f"1 of {len(shipped.heads())} cores done" in out
    assert f"3 of {every} questions answered, 2 of them right at the first answer: " in out
    assert f"1 of {len(of_start)} in lesson 00 · Start here and 2 of {len(of_scaling)} in" in out


def test_it_comes_without_pytorch():
    shown = "import sys; from amp_lessons.cli import cli; cli.main(['progress'])"
    shown += "; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True)


def test_shows_the_next_step_on_each_route(session):
    keep("end_core", "00")
    out = session("progress --routes")
    assert "\nI have an evening, to use" in out
    assert "Next on “I have an evening”: lesson 03, Loss scaling (" in out
    assert out.count("  Next on “") == len(ROUTES)


def test_exports_csv_and_json(solved, tmp_path, session):
    session(f"progress --csv {tmp_path / 'p.csv'}")
    with open(tmp_path / "p.csv") as file:
        (row,) = csv.DictReader(file)
    assert row["exercise"] == "decode_bits"
    shown = session("progress --json -").partition("\n")[2].rpartition("=>")[0]
    assert json.loads(shown)["decode_bits"]["tries"] == 2


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("", 1), (None, 1), ("yes", 0), ("Y", 0)])
def test_reset_asks_first(solved, monkeypatch, session, answer, left):
    def asked(question):
        assert "cannot be undone" in question
        if answer is None:  # there is nobody
            raise EOFError
        return answer

    monkeypatch.setattr("builtins.input", asked)
    assert session("progress --reset").endswith(f"=> {left}")
    assert len(progress.read().records) == left


def test_an_exercise_may_be_named_by_its_title_or_by_how_it_begins(solved, session):
    title = exercises.shelf.find("loss_scaler").title
    for name in (title, title.upper(), title[:8], "loss_sc"):
        keep("record_try", "loss_scaler", True)
        said = session(f'progress --reset "{name}" --yes')
        assert f'forgot the record of "{title}" (loss_scaler)' in said
        assert set(progress.read().records) == {"decode_bits"}
    assert "nothing is recorded for 'unknown'" in session("progress --reset unknown --yes")


def test_a_beginning_that_several_share_forgets_nothing(session):
    for each in ("heal_snail", "heal_standstill", "no_longer_there"):
        keep("record_try", each, True)
    said = session("progress --reset heal --yes")
    assert "write more of it" in said
    for each in ("heal_snail", "heal_standstill"):
        assert f'"{exercises.shelf.find(each).title}" ({each})' in said
    assert "no_longer_there" not in said
    assert said.endswith("=> 1")
    assert len(progress.read().records) == 3
    assert session("progress --reset no_longer --yes").endswith("=> 0")


@pytest.fixture
def written(progress_home):
    """Write the file that progress is kept in."""
    progress_home.mkdir()
    return progress.path().write_text


def test_trouble_is_told_in_words(written, session, monkeypatch):
    written('{"schema": 99, "exercises": {}}')
    said = session("progress")
    assert "newer version" in said
    assert said.endswith("=> 1")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(progress.path()))
    assert "is a file" in session("progress")


def test_progress_that_can_only_be_read_is_shown(written, progress_home, session):
    written('{"schema": 1, "exercises": {"decode_bits": {"tries": 7}}}')
    (progress_home / "progress.lock").mkdir()
    assert "7 tries" in session("progress")


@pytest.mark.parametrize("words", ["--csv -", "--json -", "--reset --yes", "--reset decode_bits --yes"])
def test_a_damaged_file_is_told_of_beside_an_export_and_a_reset(written, session, words):
    written("garbage")
    said = session(f"progress {words}")
    (file,) = progress.damaged_files()
    assert file.name in said
    assert ("--reset" in words) or (progress.Learner().as_csv() if "--csv" in words else "{}\n") in said


def test_damaged_files_are_shown_once_until_they_are_gone(written, session):
    written("garbage")
    for _ in range(2):
        said = session("progress")
        (file,) = progress.damaged_files()
        assert said.count(file.name) == 1
    file.unlink()
    assert "set aside" not in session("progress")
