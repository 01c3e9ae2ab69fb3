"""``amp-lessons interview mock`` and ``design``: an interview asked, ticked and reported in a terminal."""

from __future__ import annotations

import argparse
import random
import runpy
import time
from collections.abc import Callable
from pathlib import Path

from amp_lessons._base.text.words import counted
from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import (
    HOW_TO_LEAVE,
    InputOver,
    TakenBack,
    ask,
    ask_points,
    rule,
    say,
    say_list,
    started,
)
from amp_lessons.course import exercises, interview
from amp_lessons.course.exercises import Exercise
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview import Asked, DesignRound, Mock, MockReport
from amp_lessons.course.interview.estimates import read_number, verdict
from amp_lessons.course.interview.mock import Interview, time_left

_MOCK = (
    "Say each answer aloud. Then you see what a good one covers, and tick what you said; what is asked next "
    "depends on that. The model answer comes last. u takes back what you answered last."
)
_DESIGN = (
    "Design aloud, or on paper; each stage brings a constraint. Then you see what a good answer covers, "
    "and tick what you said. The model answers come after the last stage. u takes back what you ticked last."
)


def add_mock(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview mock``."""
    parser.add_argument("--level", choices=interview.LEVELS, default="senior", help="(default: senior)")
    parser.add_argument("--topic", action="append", choices=interview.TOPICS, help="only these topics")
    parser.add_argument("--minutes", type=typed.whole(5), default=45, help="how long it takes (default: 45)")
    parser.add_argument(
        "--seed", type=typed.whole(None), help="draw the same interview again (default: another each time)"
    )
    _add_report(parser)


def mock(args: argparse.Namespace) -> int:
    """Lead a mock interview."""
    seed = int(time.time()) if args.seed is None else args.seed
    topics = tuple(args.topic or ())
    on = f" on {', '.join(topics).replace('_', ' ')}" if topics else ""
    say(f"Mock interview{on}, level {args.level}, {args.minutes} minutes, seed {seed}. {_MOCK}")
    return _lead(lambda: Mock(args.level, args.minutes, seed, topics=topics), args.html)


def add_design(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview design``."""
    known = ", ".join(f"{each.id} ({each.title[0].lower()}{each.title[1:]})" for each in interview.DESIGNS)
    parser.add_argument(
        "design",
        nargs="?",
        metavar="DESIGN",
        choices=[each.id for each in interview.DESIGNS],
        help=f"what to design: {known} (default: one of them, drawn)",
    )
    _add_report(parser)


def design(args: argparse.Namespace) -> int:
    """Lead a round of system design."""
    chosen = args.design or random.choice(interview.DESIGNS).id
    round = next(each for each in interview.DESIGNS if each.id == chosen)
    say(f"System design: {round.title}, {len(round.stages)} stages, {round.minutes} minutes. {_DESIGN}")
    return _lead(lambda: DesignRound(chosen), args.html)


def _add_report(parser: argparse.ArgumentParser) -> None:
    typed.add_file(parser, "--html", "write the report to FILE, to be printed")


def _lead(begin: Callable[[], Interview], html: Path | None) -> int:
    """Begin an interview once somebody is ready; however it ends, the report is printed.

    Who ends it while something follows from a question reads what one would have said.
    """
    say(HOW_TO_LEAVE)
    if not started("its clock"):
        return 0
    interview = begin()
    try:
        while interview.asked is not None or _goes_on(interview):
            _one(interview)
    except InputOver:
        pass
    finally:  # Ctrl-C, too
        shown = interview.closed
        report = interview.end()
        if interview.closed is not shown:
            _show_answers(interview)
        _tell(report, html)
    return 0


def _goes_on(interview: Interview) -> bool:
    """Before the report: offer another question where there is time, and to take the last answer back."""
    more = interview.has_another
    if more:
        say(f"That was all that was planned, and there are {time_left(interview.left_s)}.")
    else:
        say("That was the last question." if interview.left_s else "The time is over.")
    another = ", m asks one more question" if more else ""
    try:
        answer = ask(
            f"Enter shows the report{another}, u takes back what you answered last:", may_undo=True
        ).lower()
    except TakenBack:
        return interview.take_back()
    if more and answer in ("m", "more"):
        interview.ask_another()
        return True
    return False


def _one(interview: Interview) -> None:
    """Ask what is asked now, and show the model answers once nothing follows; u takes the one before back."""
    assert interview.asked is not None
    try:
        _ask(interview, interview.asked)
        if interview.closed:
            _show_answers(interview)
    except TakenBack:
        say("Taken back." if interview.take_back() else "There is nothing to take back yet.")


def _ask(interview: Interview, asked: Asked) -> None:
    rule(f"{asked.heading}, {time_left(interview.left_s)}")
    say(asked.text)
    if asked.kind == "estimate":
        _ask_number(interview, asked)
    elif asked.kind == "code":
        _ask_code(interview, asked)
    else:
        ask("Say your answer aloud, then press Enter:", may_undo=True)
        print("\nA good answer covers:")
        say_list(asked.points)
        if asked.sentence:
            say(f"The model answer says of it: “{asked.sentence}”")
        covered = ask_points(asked.points)
        interview.answer(*covered)
        say(f"Noted: {len(covered)} of {counted(len(asked.points), 'point')}.")


def _show_answers(interview: Interview) -> None:
    """Show what one would have said, and wait until it was read."""
    for heading, answer in interview.answers:
        print(f"\n{heading}:")
        for paragraph in answer.splitlines():
            say(paragraph)
    for solution in filter(None, (turn.asked.solution for turn in interview.closed)):
        print(f"\n{solution}")
    print()
    if interview.asked is not None:
        ask("Enter goes on, u takes back what you answered last:", may_undo=True)


def _ask_number(interview: Interview, asked: Asked) -> None:
    assert asked.estimate is not None
    drawn = asked.estimate
    while True:
        try:
            number = read_number(ask(f"Your number, {drawn.wanted}:", may_undo=True), drawn.unit)
        except ValueError as error:
            say(f"{error}; 0 gives it up.")
            continue
        say(verdict(drawn, number, interview.guess(number)))
        return


def _ask_code(interview: Interview, asked: Asked) -> None:
    assert asked.exercise is not None
    exercise = asked.exercise
    for paragraph in rendering.task_text(exercise.task, exercise.asks).splitlines():
        say(paragraph)
    print(f"\n{asked.stub}")
    say("Write it into a file of its own. Check it as often as you like; Enter alone gives up.")
    while path := ask("Your file:", may_undo=True):
        report = _checked(exercise, Path(path).expanduser())
        say(f"{time_left(interview.left_s).capitalize()}.")
        if report is not None:
            interview.hand_in(report)
            if report.passed:
                return
    interview.hand_in(False)


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
        from amp_lessons.course.views.pages.interview import report_page

        typed.write(html, report_page(report))
