"""``amp-lessons interview code``, driven as a pipe drives it, and once as a terminal does."""

from __future__ import annotations

import itertools
import os
import re
import sys
from functools import partial
from pathlib import Path

import pytest

from amp_lessons.cli.interview import code as command
from amp_lessons.course import progress
from amp_lessons.course.interview import code_tasks as tasks
from amp_lessons.course.interview.code_rounds import CodeRound
from tests.cli.interview_hands import said


def the_file():
    (file,) = (progress.home() / "rounds").iterdir()
    return file


def write(source):
    return lambda: the_file().write_text(source)


@pytest.fixture
def clock(monkeypatch):
    """Let each look at the clock take so many seconds."""

    def tick(step_s):
        clock = partial(next, itertools.count(step=float(step_s)))
        monkeypatch.setattr(command, "CodeRound", partial(CodeRound, clock=clock))

    return tick


SOFTMAX = ("code", "--task", "stable_softmax", "--seed", "3")
ANSWER = tasks.task(10, 3, "stable_softmax").answer


def test_a_page_is_written_checked_and_told(answer, clock, golden):
    clock(0)
    half = ANSWER.replace("scores.float()", "scores")
    begun = ["", "run", "12 c", "edit", "", write("x = 1\n"), "", ""]
    out = answer(*SOFTMAX, lines=[*begun, write(half), "c", "hint", write(ANSWER), ""])
    golden("interview_code.txt", re.sub(r"seed=\d+", "seed=…", out.replace(str(the_file()), "FILE")))
    assert "\x1b" not in out


def test_it_waits_for_enter_and_begins_nothing_otherwise(answer):
    assert "Nothing was started." in answer(*SOFTMAX, lines=["q"])
    assert progress.read().rounds == {}


def test_what_is_left_says_how_to_go_on_and_its_file_goes_on_with_it(answer):
    out = answer(*SOFTMAX, lines=["", write("half = 1\n"), "check"])  # and the pipe ends
    assert "amp-lessons interview code --minutes 10 --seed 3 --task stable_softmax" in said(out)
    assert "--- good code" not in out
    out = answer(*SOFTMAX, lines=["", "check", "done"])
    assert re.search(r"This round was begun before; \d+ minutes left\.", said(out))
    assert the_file().read_text() == "half = 1\n"
    assert "2 times handed in" in said(out)
    answer(*SOFTMAX, lines=["", "done"])
    assert len(list((progress.home() / "rounds").iterdir())) == 2, "a round anew overwrites nothing"


@pytest.mark.parametrize("leaving", [("q", "y"), ()])
def test_who_leaves_a_review_reads_of_no_bug_but_those_found(answer, leaving):
    review = tasks.task(10, 21, "review").review
    first, *others = review.by_line(review.bugs)
    words = ("code", "--task", "review", "--seed", "21", "--minutes", "10")
    out = answer(*words, lines=["", review.typed(first), "1 a", "u", *leaving])
    report = said(out[out.index("--- report") :])
    assert "1 found; 1 place pointed at" in report
    assert not any(bug.cause in report for bug in others)
    assert "It goes on where you left it" in report
    told = said(answer(*words, lines=["", "done"]))
    assert f"Bugs found so far: {review.place(first)}, {first.cause}." in told[: told.index("--- report")]
    assert all(f"{review.place(bug)}: {bug.cause} (" in told for bug in review.bugs)


def test_a_review_is_pointed_at_and_mended(answer):
    review = tasks.task(30, 4, "review").review
    *places, last = map(review.typed, review.bugs)
    out = answer(
        *("code", "--task", "review", "--seed", "4", "--minutes", "30"),
        lines=["", "12 z", ", ".join(places), "task", write(review.mended_source), "check", last],
    )
    assert out.count(review.numbered) == 2
    for letter, cause in review.causes.items():
        assert f"{letter}) {cause}" in said(out)
    assert "such as 12 c" in out
    assert "There are bugs that you have not named yet" in said(out)
    assert f"{len(review.bugs)} of {len(review.bugs)} found" in said(out)
    assert "A review of a training loop, passed" in said(out)


def test_what_a_run_shows_comes_with_a_training_to_debug(answer):
    out = answer("code", "--task", "debug", "--seed", "1", lines=["", "done"])
    shown = said(out[out.index("A run of it shows:") : out.index("import torch")])
    seen = tasks.task(30, 1, "debug").seen
    assert all(what in shown for what in (*(curve.quantity for curve in seen.curves), *seen.numbers))
    assert "They report:" in out


def test_time_that_is_over_is_told_and_ends_nothing(answer, clock):
    clock(400)
    out = answer(*SOFTMAX, lines=["", "hint", write(ANSWER), "check"])
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
    child = pexpect.spawn(
        sys.executable,
        ["-m", "amp_lessons", "interview", *SOFTMAX],
        env={**os.environ, "EDITOR": str(editor), "VISUAL": "", "COLUMNS": "80"},
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
