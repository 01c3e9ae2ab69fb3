"""``amp-lessons interview``, driven as a pipe drives it: golden files hold what a whole session prints."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from amp_lessons import interview
from amp_lessons.cli.interview import rounds as command
from amp_lessons.course import progress
from amp_lessons.course.exercises import shelf
from amp_lessons.course.interview import mock
from amp_lessons.course.interview.planning import asked_for_code, asked_question
from tests.cli.interview_hands import plain, said


def grades():
    return {id: [review.grade for review in kept] for id, kept in progress.read().reviews.items()}


def test_cards_are_asked_shown_graded_taken_back_and_kept(answer, golden):
    first_card = ["u", "", "9", "1-", "1", "superb", "g", "u", "", "all", ""]
    second_card = ["", "2 - 3, 1", "easy", "q", "", "q", "y"]
    out = answer("cards", "--topic", "loss_scaling", lines=[*first_card, *second_card])
    golden("interview_cards.txt", out)
    assert plain(out)
    first, second = interview.Deck("loss_scaling", ["entry"]).cards[:2]
    assert grades() == {first.id: ["good"], second.id: ["easy"]}


def test_points_suggest_a_grade_and_a_proof_is_shown_on_demand(answer):
    out = answer("cards", "--topic", "loss_scaling", lines=["", "", "proof", ""])
    assert interview.Deck("loss_scaling").cards[0].prove().cell in out
    assert list(grades().values()) == [["again"]]
    out = answer("prove", "loss_scaling.bf16")
    assert "assert " in out


def test_an_empty_input_ends_at_once_and_what_is_not_begun_is_no_report(answer, monkeypatch):
    monkeypatch.setattr(command, "Mock", None)  # it would start its clock
    answer("cards")
    for way in ("drill", "mock"):
        for lines in ((), ("q",)):
            out = answer(way, "--seed", "1", lines=lines)
            assert "Nothing was started." in out
            assert "---" not in out
    assert grades() == {}


def test_cards_are_listed_with_when_they_are_due(answer):
    interview.Deck().grade("loss_scaling.why", "easy")
    out = answer("cards", "--list")
    assert len(out.splitlines()) == len(interview.QUESTIONS)
    assert out.count("due 2") == 1
    assert plain(out)


def rights(kind, number, seed=7):
    return ["abcdefgh"[interview.drill(1000 * seed + i, kind).right] for i in range(number)]


@pytest.mark.parametrize(("kind", "number"), [("cast", 3), ("dtype", 3), ("bytes", 3), ("curve", 1)])
def test_a_drill_says_yes_or_what_is_right(answer, kind, number):
    words = ["drill", "--seed", "7", "--number", str(number), "--kind", kind]
    right = rights(kind, number)
    for letters, count in ((right, number), (["b" if letter == "a" else "a" for letter in right], 0)):
        out = answer(*words, lines=[line for letter in letters for line in ("", letter)])
        assert f"{count} of {number} right and in time." in out
        assert out.count("No: ") == number - count
        assert plain(out)


def test_q_asks_before_it_ends_and_a_late_answer_does_not_count(answer, monkeypatch):
    ticks = iter(range(0, 10_000, 60))
    monkeypatch.setattr("amp_lessons.cli.interview.cards.time.monotonic", lambda: next(ticks))
    words = ("drill", "--seed", "7", "--number", "2", "--kind", "cast")
    out = answer(*words, lines=["", "q", "", *rights("cast", 1), "", "q", "y"])
    assert out.count("End it here?") == 2
    assert "That took 60 seconds." in out
    assert "1 of 1 right, 0 of them in time." in out


@pytest.fixture
def planned(monkeypatch):
    """Let an interview have these questions, and a clock that goes on by so many seconds at each look."""

    def plan(*asked, step_s=0.0):
        clock = partial(next, itertools.count(step=step_s))
        monkeypatch.setattr(mock, "planned", lambda *_: iter(asked))
        monkeypatch.setattr(command, "Mock", partial(interview.Mock, clock=clock))

    return plan


WHY = interview.question("loss_scaling.why")
CODE = shelf.find("stochastic_rounding")


def test_a_mock_interview_from_a_pipe(answer, planned, golden, tmp_path, monkeypatch):
    number = asked_question(interview.question("estimation.training_state"), seed=3)
    planned(asked_question(WHY), number, asked_for_code(CODE))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "wrong.py").write_text(CODE.stub)
    (tmp_path / "nothing.py").write_text("x = 1\n")
    (tmp_path / "mine.py").write_text(CODE.solution_source)
    spoken = ["u", "", "", "u", "", "1 2", "", "all", ""]  # the answer, and what follows from it
    guessed = ["about a lot", f"{number.estimate.value:g}", "", "", ""]
    coded = ["broken.py", "nothing.py", "wrong.py", "mine.py", "", ""]
    out = answer("mock", "--seed", "4", "--html", "report.html", lines=["", *spoken, *guessed, *coded])
    golden("interview_mock.txt", out)
    assert grades() == {WHY.id: ["hard"], number.question_id: ["good"]}
    page = (tmp_path / "report.html").read_text()
    assert "<h2>To repeat</h2>" in page
    assert "<h2>Model answers</h2>" in page


def test_each_question_says_how_much_time_is_left(answer, planned):
    planned(*[asked_question(WHY)] * 9, step_s=70.0)
    out = answer("mock", "--seed", "4", "--minutes", "5", lines=["", *["", "all"] * 2, ""])
    assert re.findall(r"^--- .*, (\d+ minutes left) -", out, re.MULTILINE)[0] == "4 minutes left"
    assert "The time is over." in out


def test_the_last_minute_is_told_in_seconds():
    told = [mock.time_left(seconds) for seconds in (2700, 89, 60, 59, 1, 0, -100)]
    minutes = ["45 minutes left", "1 minute left", "1 minute left"]
    assert told == [*minutes, "59 seconds left", "1 second left", "0 seconds left", "2 minutes over"]


def test_who_was_fast_is_offered_another_question(answer, planned):
    planned(asked_question(WHY))
    lines = ["", "", "", "m", "", "", ""]
    out = answer("mock", "--seed", "4", "--minutes", "10", "--level", "entry", lines=lines)
    assert "That was all that was planned, and there are 10 minutes left." in said(out)
    assert ", m asks one more question," in out
    assert out.count("A good answer covers:") == 2


def test_who_ends_it_at_a_follow_up_reads_the_model_answer(answer, planned):
    planned(asked_question(WHY))
    out = answer("mock", "--seed", "4", lines=["", "", "1", "q", "y"])
    assert said(out).index(f"A model answer: {WHY.answer}") < said(out).index("--- report")
    out = answer("mock", "--seed", "4", lines=["", "q", "q"])
    assert "A model answer:" not in out


def test_a_round_of_system_design_from_a_pipe(answer):
    stages = interview.DESIGNS[0].stages
    out = answer("design", "pretrain", lines=["", *["", "1"] * len(stages), ""])
    assert out.count("A good answer covers:") == len(stages)
    assert out.index(f"\n{stages[0].title.capitalize()}:") > out.rindex("A good answer covers:")
    assert "System design: Pretrain a large model on many GPUs:" in said(out)
    assert plain(out)


def test_trouble_with_the_progress_file_is_told_in_words(progress_home, session):
    progress_home.mkdir()
    (progress_home / "progress.json").write_text('{"schema": 99, "exercises": {}}')
    said = session("interview cards")
    assert "newer version" in said
    assert said.endswith("=> 1")


def test_a_narrow_terminal_gets_narrow_lines(answer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    out = answer("cards", "--topic", "loss_scaling", lines=["", "all", ""])
    lines = [line for line in out.splitlines() if "Enter" not in line and "proof" not in line]
    assert max(map(len, lines)) <= 50


@pytest.mark.few
@pytest.mark.skipif(os.name == "nt", reason="signals end a process otherwise there")
@pytest.mark.parametrize("way", ["cards", "mock"])
def test_ctrl_c_loses_nothing(way):
    options = ["--topic", "loss_scaling"] if way == "cards" else ["--seed", "2", "--minutes", "20"]
    with subprocess.Popen(
        [sys.executable, "-m", "amp_lessons", "interview", way, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdin.write("\nall\n\n" if way == "cards" else "\n\nall\n")
        process.stdin.flush()
        for _ in range(600):
            if progress.read().reviews:
                break
            time.sleep(0.1)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert len(progress.read().reviews) == 1
    assert way == "cards" or "1 question in" in said(out)


def test_the_sheet_is_printed_or_written(answer, tmp_path):
    out = answer("sheet")
    assert "bf16" in out
    assert plain(out)
    html, pdf = tmp_path / "sheet.html", tmp_path / "sheet.pdf"
    answer("sheet", "--html", str(html), "--pdf", str(pdf))
    assert html.read_text().startswith("<!doctype html>")
    assert pdf.read_bytes().startswith(b"%PDF-")


def test_what_cannot_be_written_is_told_in_words_before_the_work(tmp_path, session, monkeypatch):
    monkeypatch.setattr(interview.exporting, "as_csv", None)  # it would work
    for way, name in (("sheet --html", "sheet.html"), ("export --csv", "cards.csv")):
        (tmp_path / f"{name}.tmp").mkdir()  # where the unfinished file would be
        said = session(f"interview {way} {tmp_path / name}")
        assert said.endswith(f"HERE/{name} cannot be written: Is a directory\n=> 1")


def test_the_bank_is_exported_and_a_log_says_how_far_that_has_come(tmp_path, session, monkeypatch):
    monkeypatch.setattr(
        "amp_lessons.cli.interview.answers.time.monotonic", partial(next, itertools.count(step=6.0))
    )
    export = "interview export --topic estimation --csv"
    printed, said = session(f"{export} -"), session(f"{export} {tmp_path / 'x.csv'}")
    written = (tmp_path / "x.csv").read_text()
    assert written.startswith("id,topic,level")
    assert f"\n{written}" in printed
    number = sum(each.topic == "estimation" for each in interview.QUESTIONS)
    assert f"\n1 of {number} answers\n" in said
    assert said.count(f" of {number} answers\n") < number
