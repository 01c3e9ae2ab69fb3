"""``amp-lessons interview``, driven as a pipe drives it."""

from __future__ import annotations

import io
import itertools
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from amp_lessons import interview
from amp_lessons.cli import cli
from amp_lessons.cli.interview import rounds as command
from amp_lessons.course import progress
from amp_lessons.course.interview.mock import time_left


@pytest.fixture
def answer(monkeypatch, capsys):
    """Call the command with these lines on its standard input; return status and output."""

    def call(*words, lines=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        status = cli.main(["interview", *words])
        return status, capsys.readouterr().out

    return call


def plain(text):
    """Whether it is without colours, and fits into 80 columns: code is shown as it is written."""
    return "\x1b" not in text and all(len(line) <= 80 for line in text.splitlines())


def test_a_card_is_asked_shown_graded_and_kept(answer):
    status, out = answer("cards", "--topic", "loss_scaling", lines=["", "all", ""])
    assert status == 0
    first = interview.Deck("loss_scaling").cards[0].question
    said = " ".join(out.split())
    assert " ".join(first.question.split()) in said
    assert " ".join(first.answer.split()) in said
    assert [review.grade for review in progress.read().reviews.get(first.id, ())] == ["good"]
    assert "good in 10 minutes, easy in 8 days" in said
    assert "Practised: 1." in out
    assert plain(out)


def test_points_suggest_a_grade_and_another_may_be_given(answer):
    answer("cards", "--topic", "loss_scaling", lines=["", "", "", "", "1", "easy"])
    grades = [reviews[-1].grade for reviews in progress.read().reviews.values()]
    assert grades == ["again", "easy"]


def test_what_is_no_answer_is_asked_again(answer):
    _, out = answer("cards", "--topic", "loss_scaling", lines=["", "9", "1", "superb", "g"])
    assert "Answer with numbers from 1 to" in out
    assert "Answer with one of: again, hard, good, easy, proof." in out
    assert [reviews[-1].grade for reviews in progress.read().reviews.values()] == ["good"]


def test_a_proof_is_shown_on_demand(answer):
    _, out = answer("cards", "--topic", "loss_scaling", lines=["", "all", "proof", "good"])
    assert "assert " in out
    assert len(progress.read().reviews) == 1


def test_an_empty_input_ends_at_once(answer):
    for way in (["cards"], ["drill", "--seed", "1"], ["mock", "--seed", "1"]):
        status, out = answer(*way)
        assert status == 0
        assert plain(out)
    assert progress.read().reviews == {}


def test_cards_are_listed_with_when_they_are_due(answer):
    interview.Deck().grade("loss_scaling.why", "easy")
    status, out = answer("cards", "--list")
    assert status == 0
    assert len(out.splitlines()) == len(interview.QUESTIONS)
    assert out.count("due 2") == 1
    assert plain(out)


@pytest.mark.parametrize(("kind", "number"), [("cast", 3), ("dtype", 3), ("bytes", 3), ("curve", 1)])
def test_a_drill_says_yes_or_what_is_right(answer, kind, number):
    drawn = [interview.drill(7000 + i, kind) for i in range(number)]
    right = ["abcdefgh"[drill.right] for drill in drawn]
    words = ["drill", "--seed", "7", "--number", str(number), "--kind", kind]
    status, out = answer(*words, lines=entered(right))
    assert status == 0
    assert f"{number} of {number} right and in time." in out
    assert plain(out)
    _, out = answer(*words, lines=entered("b" if letter == "a" else "a" for letter in right))
    assert f"0 of {number} right and in time." in out
    assert out.count("No: ") == number


def entered(letters):
    """Yield the lines that answer a drill: Enter starts each question."""
    for letter in letters:
        yield from ("", letter)


def test_no_clock_runs_before_enter_and_what_is_not_begun_is_no_report(answer, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "Mock", None)  # it would start its clock
    for way in ("drill", "mock"):
        for lines in ((), ("q",)):
            status, out = answer(way, "--seed", "1", lines=lines)
            assert status == 0
            assert "Nothing was started." in out
            assert "---" not in out


def test_q_asks_before_it_ends(answer):
    right = ["abcdefgh"[interview.drill(1000 + i, "cast").right] for i in range(2)]
    words = ("drill", "--seed", "1", "--number", "2", "--kind", "cast")
    _, out = answer(*words, lines=["", "q", "", right[0], "", "q", "y"])
    assert out.count("End it here?") == 2
    assert "1 of 1 right and in time." in out
    _, out = answer("mock", "--seed", "4", lines=["", "q", "q"])
    assert "0 questions" in out[out.index("--- report") :]


def test_a_late_answer_does_not_count(answer, monkeypatch):
    ticks = iter(range(0, 10_000, 60))
    monkeypatch.setattr("amp_lessons.cli.interview.drill.time.monotonic", lambda: next(ticks))
    right = "abcdefgh"[interview.drill(1000, "cast").right]
    _, out = answer("drill", "--seed", "1", "--number", "1", "--kind", "cast", lines=["", right])
    assert "That took 60 seconds." in out
    assert "1 of 1 right, 0 of them in time." in out


# Enter shows the rubric, "all" covers it, Enter goes on after a model answer; a number and a file name are no
# answers elsewhere.
def conversation(mock, until="none"):
    """Yield lines that answer whatever ``mock`` asks, everything covered."""
    while mock.asked is not None and mock.asked.kind != until:
        if mock.asked.kind == "question":
            yield from ("", "all")
            mock.answer(*range(len(mock.asked.points)))
        elif mock.asked.kind == "estimate":
            yield "about a lot"
            yield f"{mock.asked.estimate.value:g}"
            mock.guess(mock.asked.estimate.value)
        else:
            yield "no_such_file.py"
            yield ""
            mock.hand_in(False)
        if mock.closed:
            yield ""


def test_a_mock_interview_from_a_pipe(answer, tmp_path):
    lines = ["", *conversation(interview.Mock("senior", 45, 4))]
    status, out = answer("mock", "--seed", "4", lines=lines)
    assert status == 0
    assert "Mock interview, level senior, seed 4" in out
    assert re.search(r"Your number, (in .*, )?within \d+ %:", out)
    assert ": near enough." in out
    rubric, answer_last = out.index("A good answer covers:"), out.index("A model answer:")
    assert rubric < out.index("follow-up") < answer_last
    assert "no_such_file.py does not run: FileNotFoundError" in out
    report = out[out.index("--- report") :]
    assert "Strengths" in report
    assert "To repeat" in report
    assert plain(report)


def test_each_question_says_how_much_time_is_left(answer, monkeypatch):
    ticks = itertools.count(step=70.0)
    monkeypatch.setattr(
        command, "Mock", lambda *words, **given: interview.Mock(*words, clock=lambda: next(ticks), **given)
    )
    _, out = answer(
        "mock", "--seed", "4", "--minutes", "5", "--level", "entry", lines=["", *["", "all"] * 2, ""]
    )
    left = re.findall(r"^--- .*, (\d+ (?:minute|second)s? left) -", out, re.MULTILINE)
    assert left[0] == "4 minutes left"
    assert "The time is over." in out
    assert plain(out)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (2700, "45 minutes left"),
        (89, "1 minute left"),
        (60, "1 minute left"),
        (59, "59 seconds left"),
        (1, "1 second left"),
        (0, "0 seconds left"),
    ],
)
def test_the_last_minute_is_told_in_seconds(seconds, words):
    assert time_left(seconds) == words


def test_code_is_checked_from_a_file(answer, tmp_path):
    mock = interview.Mock("senior", 45, 4)
    lines = ["", *conversation(mock, until="code")]
    file, wrong = tmp_path / "mine.py", tmp_path / "wrong.py"
    wrong.write_text(mock.asked.stub)
    file.write_text(mock.exercise.solution_source)
    _, out = answer("mock", "--seed", "4", lines=[*lines, str(wrong), str(file)])
    assert mock.asked.solution.strip() in out, "where there is no lesson to look it up"
    report = " ".join(out[out.index("--- report") :].split())
    assert "(passed, 1 failed hand-in, " in report
    assert "code that passes its check" not in report


def test_a_slip_of_enter_is_taken_back(answer):
    first = interview.Mock("senior", 45, 4).asked
    _, out = answer("mock", "--seed", "4", lines=["", "u", "", "", "u", "", "all"])
    assert "There is nothing to take back yet." in out
    assert f"Noted: 0 of {len(first.points)} points." in out
    assert "Taken back." in out
    assert [review.grade for review in progress.read().reviews.get(first.question_id, ())] == ["good"]
    assert f"{len(first.points)} of {len(first.points)} points" in " ".join(
        out[out.index("--- report") :].split()
    )


def test_who_was_fast_is_offered_another_question(answer):
    lines = ["", *conversation(interview.Mock("entry", 10, 4))]
    words = ("mock", "--seed", "4", "--minutes", "10", "--level", "entry")
    _, out = answer(*words, lines=lines)
    assert "That was all that was planned, and there are 10 minutes left." in " ".join(out.split())
    asked = out.count("A good answer covers:")
    _, out = answer(*words, lines=[*lines[:-1], "m", "", "all", "", ""])
    assert out.count("A good answer covers:") == asked + 2, "the question, and what follows from it"
    assert ", m asks one more question," in out


def test_who_ends_it_at_a_follow_up_reads_the_model_answer(answer):
    first = interview.Mock("senior", 45, 4).asked
    _, out = answer("mock", "--seed", "4", lines=["", "", "1", "q", "y"])
    said = " ".join(out.split())
    assert "follow-up" in said
    assert f"A model answer: {first.answer}" in said
    assert said.index("A model answer:") < said.index("--- report")
    _, out = answer("mock", "--seed", "4", lines=["", "q", "y"])
    assert "A model answer:" not in out


def test_a_round_of_system_design_from_a_pipe(answer):
    stages = interview.DESIGNS[0].stages
    status, out = answer("design", "pretrain", lines=["", *["", "1"] * len(stages), ""])
    assert status == 0
    assert out.count("A good answer covers:") == len(stages)
    assert out.index(f"\n{stages[0].title.capitalize()}:") > out.rindex("A good answer covers:")
    assert "System design: Pretrain a large model on many GPUs:" in " ".join(out.split())
    assert plain(out)


def test_a_grade_given_by_a_slip_is_taken_back(answer):
    first = interview.Deck("loss_scaling").cards[0]
    _, out = answer("cards", "--topic", "loss_scaling", lines=["u", "", "", "", "u", "", "all", "good"])
    assert "There is nothing to take back yet." in out
    assert "Practised: 1." in out
    assert [review.grade for review in progress.read().reviews.get(first.id, ())] == ["good"]


def test_an_answer_can_be_proved(answer):
    status, out = answer("prove", "loss_scaling.bf16")
    assert status == 0
    assert "assert " in out


def test_trouble_with_the_progress_file_is_told_in_words(answer, progress_home, capsys):
    progress_home.mkdir()
    (progress_home / "progress.json").write_text('{"schema": 99, "exercises": {}}')
    assert cli.main(["interview", "cards"]) == 1
    assert "newer version" in capsys.readouterr().err


def test_a_narrow_terminal_gets_narrow_lines(answer, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    _, out = answer("cards", "--topic", "loss_scaling", lines=["", "all", ""])
    assert (
        max(map(len, (line for line in out.splitlines() if "Enter" not in line and "proof" not in line)))
        <= 50
    )


@pytest.mark.few
@pytest.mark.skipif(os.name == "nt", reason="signals end a process otherwise there")
@pytest.mark.parametrize("way", ["cards", "mock"])
def test_ctrl_c_loses_nothing(way):
    command = [sys.executable, "-m", "amp_lessons", "interview", way]
    options = ["--topic", "loss_scaling"] if way == "cards" else ["--seed", "2", "--minutes", "20"]
    with subprocess.Popen(
        [*command, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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
    assert way == "cards" or "1 question in" in " ".join(out.split())


def test_the_sheet_is_printed_or_written(answer, tmp_path):
    status, out = answer("sheet")
    assert status == 0
    assert "bf16" in out
    assert plain(out)
    html, pdf = tmp_path / "sheet.html", tmp_path / "sheet.pdf"
    assert answer("sheet", "--html", str(html), "--pdf", str(pdf))[0] == 0
    assert html.read_text().startswith("<!doctype html>")
    assert pdf.read_bytes().startswith(b"%PDF-")


def test_what_cannot_be_written_is_told_in_words_before_the_work(tmp_path, capsys, monkeypatch):
    (tmp_path / "sheet.html.tmp").mkdir()  # where the unfinished file would be
    assert cli.main(["interview", "sheet", "--html", str(tmp_path / "sheet.html")]) == 1
    assert "sheet.html cannot be written: Is a directory" in capsys.readouterr().err
    (tmp_path / "cards.csv.tmp").mkdir()
    monkeypatch.setattr(interview.exporting, "as_csv", None)  # it would work
    assert cli.main(["interview", "export", "--csv", str(tmp_path / "cards.csv")]) == 1
    assert "cards.csv cannot be written: Is a directory" in capsys.readouterr().err


def test_the_bank_is_exported(answer, tmp_path):
    status, out = answer("export", "--csv", "-", "--topic", "estimation")
    assert status == 0
    assert out.startswith("id,topic,level")
    file = tmp_path / "cards.csv"
    assert answer("export", "--csv", str(file), "--topic", "estimation")[0] == 0
    assert file.read_text() == out


def test_a_report_is_written_to_be_printed(answer, tmp_path):
    file = tmp_path / "report.html"
    assert answer("mock", "--seed", "4", "--html", str(file), lines=["", "", ""])[0] == 0
    assert "<h2>To repeat</h2>" in file.read_text()
    assert "<h2>Model answers</h2>" in file.read_text()


def test_points_are_ticked_by_ranges_too(answer):
    words = ("cards", "--topic", "loss_scaling")
    _, out = answer(*words, lines=["", "1-3", "", "", "2 - 3, 1", "", "", "3-9", "1-", "q", "y"])
    assert out.count("such as 1 3 or 1-3") == 2
    first, second = list(progress.read().reviews.values())
    points = [len(each.points) for each in interview.Deck("loss_scaling").cards[:2]]
    suggested = [interview.deck.suggested_grade(3, number) for number in points]
    assert [first[-1].grade, second[-1].grade] == suggested


def test_a_long_export_says_in_a_log_how_far_it_has_come(tmp_path, capsys, monkeypatch):
    ticks = itertools.count(step=6.0)
    monkeypatch.setattr("amp_lessons.cli.interview.answers.time.monotonic", lambda: next(ticks))
    assert cli.main(["interview", "export", "--csv", str(tmp_path / "x.csv"), "--topic", "estimation"]) == 0
    number = sum(each.topic == "estimation" for each in interview.QUESTIONS)
    said = capsys.readouterr().err
    assert f"\n1 of {number} answers\n" in said
    assert said.count(f" of {number} answers\n") < number
