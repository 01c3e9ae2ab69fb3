"""``amp-lessons interview code``, driven as a pipe drives it, and once as a terminal does."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest

from amp_lessons.cli import cli
from amp_lessons.cli.interview import code as command
from amp_lessons.course import progress
from amp_lessons.course.interview.coding import tasks
from amp_lessons.course.interview.coding.rounds import CodeRound


@pytest.fixture
def answer(monkeypatch, capsys):
    """Call the command with these lines on its standard input; a line that is a function is called first."""

    def call(*words, lines=()):
        waiting = list(lines)

        def line():
            while waiting and callable(waiting[0]):
                waiting.pop(0)()
            return f"{waiting.pop(0)}\n" if waiting else ""

        typed = io.StringIO()
        typed.readline = line
        monkeypatch.setattr(sys, "stdin", typed)
        monkeypatch.setattr("builtins.input", lambda prompt: _read(prompt, line))
        status = cli.main(["interview", "code", *words])
        return status, capsys.readouterr().out

    return call


def _read(prompt, line):
    print(prompt, end="")
    found = line()
    if not found:
        raise EOFError
    return found.rstrip("\n")


def the_file():
    (file,) = (progress.home() / "rounds").iterdir()
    return file


def write(source):
    return lambda: the_file().write_text(source)


SOFTMAX = ("--task", "stable_softmax", "--seed", "3")
ANSWER = tasks.task(10, 3, "stable_softmax").answer


def test_a_page_is_written_checked_and_told(answer):
    half = ANSWER.replace("scores.float()", "scores")
    status, out = answer(*SOFTMAX, lines=["", "edit", write(half), "c", "hint", write(ANSWER), ""])
    assert status == 0
    assert "Code round of 10 minutes, seed 3" in out
    assert "def softmax_with_logsumexp(scores, dim):" in out
    assert f"come back here:\n{the_file()}\n" in out
    assert "✗ wrong_return_type: for " in out
    assert "Hint 1 of 3" in out
    report = out[out.index("--- report") :]
    assert "Code round, seed 3: A stable softmax, and its logsumexp, passed" in report
    assert "2 times handed in" in report
    assert "1 hint of 3" in report
    assert "--- good code" in report
    assert "\x1b" not in out


def test_it_waits_for_enter_and_begins_nothing_otherwise(answer):
    _, out = answer(*SOFTMAX, lines=["q"])
    assert "Nothing was started." in out
    assert progress.read().rounds == {}


def test_enter_alone_edits_what_has_not_changed_and_checks_what_has(answer):
    _, out = answer(*SOFTMAX, lines=["", "", write("x = 1\n"), "", "", "done"])
    assert out.count("Open it in your editor") == 2
    assert out.count("The code does not run: softmax_with_logsumexp is not defined.") == 1


def test_what_is_left_goes_on_and_its_file_with_it(answer):
    answer(*SOFTMAX, lines=["", write("half = 1\n"), "check"])  # and the pipe ends
    _, out = answer(*SOFTMAX, lines=["", "check", "done"])
    said = " ".join(out.split())
    assert re.search(r"This round was begun before; \d+ minutes left\.", said)
    assert the_file().read_text() == "half = 1\n"
    assert "2 times handed in" in said
    answer(*SOFTMAX, lines=["", "done"])
    assert len(list((progress.home() / "rounds").iterdir())) == 2, "a round anew overwrites nothing"


def test_leaving_says_how_to_go_on_and_gives_no_code_away(answer):
    _, out = answer(*SOFTMAX, lines=["", "q", "y"])
    assert "amp-lessons interview code --minutes 10 --seed 3 --task stable_softmax" in " ".join(out.split())
    assert "--- good code" not in out


@pytest.mark.parametrize("leaving", [("q", "y"), ()])
def test_who_leaves_a_review_reads_of_no_bug_but_those_found(answer, leaving):
    review = tasks.task(10, 21, "review").review
    letters = {cause: letter for letter, cause in review.causes.items()}
    first, *others = review.by_line(review.bugs)
    found = f"{min(review.lines(first))} {letters[first.cause]}"
    words = ("--task", "review", "--seed", "21", "--minutes", "10")
    _, out = answer(*words, lines=["", found, "1 a", "u", *leaving])
    said = " ".join(out[out.index("--- report") :].split())
    assert "1 found; 1 place pointed at" in said
    assert not any(bug.cause in said for bug in others)
    assert "It goes on where you left it" in said
    _, out = answer(*words, lines=["", "done"])
    said = " ".join(out.split())
    assert f"Bugs found so far: {review.place(first)}, {first.cause}." in said[: said.index("--- report")]
    assert all(f"{review.place(bug)}: {bug.cause} (" in said for bug in review.bugs)


def test_a_review_is_pointed_at_and_mended(answer):
    review = tasks.task(30, 4, "review").review
    letters = {cause: letter for letter, cause in review.causes.items()}
    places = [f"{min(review.lines(bug))} {letters[bug.cause]}" for bug in review.bugs]
    status, out = answer(
        *("--task", "review", "--seed", "4", "--minutes", "30"),
        lines=["", "12 z", ", ".join(places[:-1]), "task", write(review.mended_source), "check", places[-1]],
    )
    assert status == 0
    said = " ".join(out.split())
    assert out.count(review.numbered) == 2
    for letter, cause in review.causes.items():
        assert f"{letter}) {cause}" in said
    assert "such as 12 c" in said
    assert f"{len(review.bugs)} of {len(review.bugs)} found" in said
    assert "A review of a training loop, passed" in said


def test_what_a_run_shows_comes_with_a_training_to_debug(answer):
    _, out = answer("--task", "debug", "--seed", "1", lines=["", "done"])
    shown = out[out.index("A run of it shows:") : out.index("import torch")]
    seen = tasks.task(30, 1, "debug").seen
    for what in (*(curve.quantity for curve in seen.curves), *seen.numbers):
        assert what in " ".join(shown.split())
    assert "They report:" in out


def test_a_mended_review_says_why_it_goes_on(answer):
    answered = tasks.task(10, 1, "review").answer
    _, out = answer("--task", "review", "--seed", "1", lines=["", write(answered), "check", "done"])
    assert "There are bugs that you have not named yet" in " ".join(out.split())


def test_an_unknown_word_is_answered_with_those_there_are(answer):
    _, out = answer(*SOFTMAX, lines=["", "run", "12 c", "done"])
    assert out.count("gives the next hint of three") == 3, "at first, and twice again"


def test_time_that_is_over_is_told_and_ends_nothing(answer, monkeypatch):
    ticks = iter(range(0, 100_000, 400))
    monkeypatch.setattr(
        command, "CodeRound", lambda *words: CodeRound(*words, clock=lambda: float(next(ticks)))
    )
    _, out = answer(*SOFTMAX, lines=["", "hint", write(ANSWER), "check"])
    assert re.search(r"\(\d+ minutes over\)", out)
    assert "passed" in out[out.index("--- report") :]


@pytest.mark.thorough
@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals there")
def test_in_a_terminal_it_opens_the_editor(tmp_path):
    pexpect = pytest.importorskip("pexpect")
    answered = tmp_path / "answer.py"
    answered.write_text(ANSWER)
    editor = tmp_path / "editor.sh"
    editor.write_text(f"#!/bin/sh\ncp {answered} $1\n")
    editor.chmod(0o755)
    environment = {**os.environ, "EDITOR": str(editor), "VISUAL": "", "COLUMNS": "80"}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "amp_lessons", "interview", "code", *SOFTMAX],
        env=environment,
        encoding="utf-8",
        timeout=120,
    )
    child.expect("start its clock:")
    child.sendline("")
    for _ in range(2):  # edit, then check
        child.expect("task, done:")
        child.sendline("")
    child.expect("--- good code")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert Path(the_file()).read_text() == ANSWER
