"""``amp-lessons interview mock``: one question at a time, against the clock, and a report at the end."""

from __future__ import annotations

import argparse
import runpy
import time
from pathlib import Path

from amp_lessons import exercises, interview
from amp_lessons.commands import typed
from amp_lessons.commands.interview.terminal import (
    HOW_TO_LEAVE,
    InputOver,
    ask,
    ask_points,
    rule,
    say,
    say_list,
    started,
)
from amp_lessons.exercises import Exercise
from amp_lessons.exercises.report import rendering
from amp_lessons.interview import Asked, Mock, MockReport
from amp_lessons.interview.mock import time_left


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview mock``."""
    parser.add_argument("--level", choices=interview.LEVELS, default="senior", help="(default: senior)")
    parser.add_argument("--minutes", type=typed.whole(5), default=45, help="how long it takes (default: 45)")
    parser.add_argument(
        "--seed", type=typed.whole(None), help="draw the same interview again (default: another each time)"
    )
    parser.add_argument(
        "--html", type=typed.file_to_write, metavar="FILE", help="write the report to FILE, to be printed"
    )


def run(args: argparse.Namespace) -> int:
    """Lead the interview; however it ends, the report is printed."""
    seed = int(time.time()) if args.seed is None else args.seed
    say(
        f"Mock interview, level {args.level}, {args.minutes} minutes, seed {seed}. Say each answer "
        f"aloud; you grade yourself. {HOW_TO_LEAVE}"
    )
    if not started("its clock"):
        return 0
    mock = Mock(args.level, args.minutes, seed)
    try:
        while mock.asked is not None:
            _ask(mock, mock.asked)
        if not mock.left_s:
            say("The time is over.")
    except InputOver:
        pass
    finally:  # Ctrl-C, too
        _tell(mock.end(), args.html)
    return 0


def _ask(mock: Mock, asked: Asked) -> None:
    rule(f"{asked.heading}, {time_left(mock.left_s)}")
    say(asked.text)
    if asked.kind == "estimate":
        _ask_number(mock, asked)
    elif asked.kind == "code":
        _ask_code(mock, asked)
    else:
        ask("Say your answer aloud, then press Enter:")
        print()
        say(asked.answer)
        print("\nA good answer covers:")
        say_list(asked.points)
        mock.answer(*ask_points(asked.points))


def _ask_number(mock: Mock, asked: Asked) -> None:
    assert asked.estimate is not None
    unit = asked.estimate.unit
    while True:
        answer = ask(f"Your number, in {unit}:" if unit else "Your number:").removesuffix(unit)
        try:
            number = float(answer.replace(",", ""))
        except ValueError:
            say("Answer with a number, such as 16 or 3.5e9.")
            continue
        say("Near enough." if mock.guess(number) else f"No: {asked.estimate.value_in_words}.")
        say(asked.answer)
        return


def _ask_code(mock: Mock, asked: Asked) -> None:
    assert asked.exercise is not None
    exercise = asked.exercise
    for paragraph in rendering.task_text(exercise.task, exercise.asks).splitlines():
        say(paragraph)
    print(f"\n{exercise.stub}")
    say("Write it into a file of its own. Check it as often as you like; Enter alone gives up.")
    while path := ask("Your file:"):
        report = _checked(exercise, Path(path).expanduser())
        say(f"{time_left(mock.left_s).capitalize()}.")
        if report is not None and report.passed:
            mock.hand_in(report)
            return
    mock.hand_in(False)


def _checked(exercise: Exercise, path: Path) -> exercises.Report | None:
    """Check the exercise's names in a learner's file, and say what was found; None if it does not run."""
    try:
        attempt = exercise.defined_in(runpy.run_path(str(path)))
    except KeyError as error:
        say(f"{path} does not define {error.args[0]}.")
    except Exception as error:  # it is the learner's code: whatever it raises
        say(f"{path} does not run: {type(error).__name__}: {error}")
    else:
        report = exercises.check(exercise.id, attempt)
        print(report, flush=True)
        return report
    return None


def _tell(report: MockReport, html: Path | None) -> None:
    rule("report")
    print(report, flush=True)
    if html is not None:
        from amp_lessons.views.pages.interview import report_page

        typed.write(html, report_page(report))
