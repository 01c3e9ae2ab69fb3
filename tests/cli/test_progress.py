"""``amp-lessons progress``."""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys

import pytest

from amp_lessons import exercises, quizzes
from amp_lessons.cli import progress as command
from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped
from amp_lessons.course.routes.catalogue import ROUTES
from tests.course.keep import keep


def call(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


@pytest.fixture
def solved():
    keep("record_try", "decode_bits", False)
    keep("record_try", "decode_bits", True)


def test_shows_what_is_solved_and_where_it_is_kept(solved, capsys):
    assert call() == 0
    out = capsys.readouterr().out
    assert f"1 of {len(exercises.catalog())} exercises solved\n" in out
    assert "2 tries" in out
    assert str(progress.path()) in out


def test_it_comes_without_pytorch():
    shown = "import sys; from amp_lessons.cli import cli; cli.main(['progress'])"
    shown += "; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", shown], check=True, capture_output=True)


def test_says_how_many_questions_were_answered(capsys):
    asked = [each.id for each in quizzes.of_lesson("03")]
    every = len(quizzes.questions())
    assert call() == 0
    assert f"0 of {every} questions answered.\n" in capsys.readouterr().out
    for id, right in ((asked[0], True), (asked[1], False), (quizzes.of_lesson("00")[0].id, True)):
        keep("answer", id, right)
    assert call() == 0
    out = capsys.readouterr().out
    assert f"3 of {every} questions answered, 2 of them right at the first answer: " in out
    assert f"1 of {len(quizzes.of_lesson('00'))} in lesson 00 · Start here and 2 of {len(asked)} in" in out


def test_shows_cores_that_were_done_and_the_next_step_on_each_route(capsys):
    keep("end_core", "00")
    assert call() == 0
    assert f"1 of {len(shipped.heads())} cores done" in capsys.readouterr().out
    assert call("--routes") == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("I have an evening, to use")]
    assert "Next on “I have an evening”: lesson 03, Loss scaling (" in out
    assert out.count("  Next on “") == len(ROUTES)


def test_exports_csv_and_json(solved, tmp_path, capsys):
    assert call("--csv", str(tmp_path / "p.csv")) == 0
    with open(tmp_path / "p.csv") as file:
        (row,) = csv.DictReader(file)
    assert row["exercise"] == "decode_bits"
    capsys.readouterr()
    assert call("--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["decode_bits"]["tries"] == 2


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("", 1), ("yes", 0), ("Y", 0)])
def test_reset_asks_first(solved, monkeypatch, capsys, answer, left):
    asked = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    assert call("--reset") == (1 if left else 0)
    assert "cannot be undone" in asked[0]
    assert len(progress.read().records) == left


def test_reset_without_anyone_to_ask_changes_nothing(solved, monkeypatch, capsys):
    def nobody(question):
        raise EOFError

    monkeypatch.setattr("builtins.input", nobody)
    assert call("--reset") == 1
    assert progress.read().of("decode_bits").solved


def test_reset_of_one_exercise_when_told_yes(solved, capsys):
    keep("record_try", "loss_scaler", True)
    assert call("--reset", "decode_bits", "--yes") == 0
    assert set(progress.read().records) == {"loss_scaler"}
    assert call("--reset", "unknown", "--yes") == 1
    assert "nothing is recorded for 'unknown'" in capsys.readouterr().err


def test_an_exercise_may_be_named_by_its_title_or_by_how_it_begins(capsys):
    title = exercises.shelf.find("loss_scaler").title
    for name in (title, title.upper(), title[:8], "loss_sc"):
        keep("record_try", "loss_scaler", True)
        assert call("--reset", name, "--yes") == 0
        assert f'forgot the record of "{title}" (loss_scaler)' in capsys.readouterr().out
        assert progress.read().records == {}


def test_a_beginning_that_several_share_forgets_nothing(capsys):
    for each in ("heal_snail", "heal_standstill", "no_longer_there"):
        keep("record_try", each, True)
    assert call("--reset", "heal", "--yes") == 1
    said = capsys.readouterr().err
    assert "write more of it" in said
    for each in ("heal_snail", "heal_standstill"):
        assert f'"{exercises.shelf.find(each).title}" ({each})' in said
    assert "no_longer_there" not in said
    assert len(progress.read().records) == 3
    assert call("--reset", "no_longer", "--yes") == 0


def test_trouble_is_told_in_words(monkeypatch, tmp_path, capsys):
    (tmp_path / "progress").mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    assert call() == 1
    assert "newer version" in capsys.readouterr().err


@pytest.fixture
def damaged(progress_home):
    progress_home.mkdir()
    progress.path().write_text("garbage")


@pytest.mark.parametrize(("words", "status"), [(("--csv", "-"), 0), (("--json", "-"), 0)])
def test_an_export_tells_of_a_damaged_file_beside_what_it_exports(damaged, capsys, words, status):
    assert call(*words) == status
    printed = capsys.readouterr()
    (file,) = progress.damaged_files()
    assert str(file) in printed.err
    assert printed.out == (progress.Learner().as_csv() if "--csv" in words else "{}\n")


@pytest.mark.parametrize("words", [("--reset", "--yes"), ("--reset", "decode_bits", "--yes")])
def test_a_reset_tells_of_a_damaged_file(damaged, capsys, words):
    call(*words)
    (file,) = progress.damaged_files()
    assert str(file) in capsys.readouterr().err


def test_damaged_files_are_shown_once_until_they_are_gone(damaged, capsys):
    for _ in range(2):
        assert call() == 0
        (file,) = progress.damaged_files()
        assert capsys.readouterr().out.count(str(file)) == 1
    file.unlink()
    call()
    assert "set aside" not in capsys.readouterr().out


def test_progress_that_can_only_be_read_is_shown(progress_home, capsys):
    progress_home.mkdir()
    (progress_home / "progress.lock").mkdir()
    progress.path().write_text('{"schema": 1, "exercises": {"decode_bits": {"tries": 7}}}')
    assert call() == 0
    assert "7 tries" in capsys.readouterr().out


def test_a_home_that_is_a_file_is_trouble(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "file"))
    assert call() == 1
    assert "is a file" in capsys.readouterr().err
