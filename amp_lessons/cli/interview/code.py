"""``amp-lessons interview code``: a blank page, a clock, and the course's checks."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from amp_lessons.cli import typed
from amp_lessons.cli.interview.terminal import (
    HOW_TO_LEAVE,
    InputOver,
    ask,
    rule,
    say,
    started,
)
from amp_lessons.course import progress
from amp_lessons.course.clinic import Observed
from amp_lessons.course.exercises.report import rendering
from amp_lessons.course.interview import code_tasks as tasks
from amp_lessons.course.interview.code_rounds import CodeRound
from amp_lessons.course.interview.mock import time_left

_HELP = {
    "edit": "opens the file in $EDITOR, or says where it is",
    "check": "lets the check look at the file as it is saved",
    "hint": "gives the next hint of three",
    "task": "shows the task again",
    "done": "ends the round: with a report, and with good code",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``amp-lessons interview code``."""
    parser.add_argument(
        "--minutes",
        type=int,
        choices=tasks.TASKS,
        help="how long the round is (default: 30, or what TASK takes)",
    )
    parser.add_argument(
        "--seed", type=typed.whole(None), help="the same round again, where it was left (default: another)"
    )
    parser.add_argument(
        "--task", choices=tasks.known_tasks(), metavar="TASK", help=f"one of {', '.join(tasks.known_tasks())}"
    )


def run(args: argparse.Namespace) -> int:
    """Lead the round; however it ends, the report is printed, and what was handed in is kept."""
    seed = int(time.time()) if args.seed is None else args.seed
    minutes = args.minutes or (tasks.minutes_for(args.task) if args.task else 30)
    say(f"Code round of {minutes} minutes, seed {seed}. The clock shows, and ends nothing. {HOW_TO_LEAVE}")
    if not started("its clock"):
        return 0
    coding = CodeRound(minutes, seed, args.task or "")
    if coding.resumed:
        say(f"This round was begun before; {time_left(coding.left_s)}. {coding.standing}")
    file = _file(coding)
    _show(coding)
    print(f"The file to write into, for $EDITOR or any editor:\n{file}\n", flush=True)  # whole, to be copied
    _explain(coding)
    ended = False
    try:
        ended = _lead(coding, file)
    except InputOver:
        pass
    finally:  # Ctrl-C, too
        _tell(coding, ended)
    return 0


def _lead(coding: CodeRound, file: Path) -> bool:
    """Do what is asked for until the round is over; True where nothing is left to do."""
    seen = file.stat().st_mtime_ns
    while not (coding.passed and coding.all_found):
        answer = _next(coding)
        if not answer:  # only now: who has an editor of his own writes while this asks
            answer = "check" if file.stat().st_mtime_ns != seen else "edit"
        if answer == "done":
            break
        if answer == "edit":
            _edit(file)
        elif answer == "check":
            seen = file.stat().st_mtime_ns
            print(coding.hand_in_source(file.read_text("utf-8"), str(file)), flush=True)
            if coding.passed and not coding.all_found:
                say(f"{coding.standing} done ends the round without them.")
        elif answer == "hint":
            say(coding.hint())
        elif answer == "task":
            _show(coding)
        elif answer == "undo":
            say(coding.take_back())
        else:
            try:
                say(coding.point(answer))
            except ValueError as error:
                say(f"{error}.")
    return True


def _next(coding: CodeRound) -> str:
    """Ask what to do next: one of the words, bugs that are pointed at, or "" for Enter alone."""
    also = ", or 12 c" if coding.task.review else ""
    while True:
        answer = ask(f"({time_left(coding.left_s)}) {', '.join(_HELP)}{also}:").lower()
        if not answer or (coding.task.review and re.match(r"\d", answer)):
            return answer
        found = [word for word in (*_HELP, "undo") if word.startswith(answer)]
        if found:
            return found[0]
        _explain(coding)


def _explain(coding: CodeRound) -> None:
    for word, what in _HELP.items():
        say(f"{what}.", f"  {word:6}")
    if coding.task.review:
        say("points at a bug: the number of its line, and the letter of its cause.", "  12 c  ")
        say("takes back what you pointed at last.", "  u     ")
    say("Enter alone checks the file where it has changed, and opens it where it has not.")


def _file(coding: CodeRound) -> Path:
    """Return the round's own file; it begins with the page, or with what was handed in last."""
    begun = re.sub(r"\D", "", coding.kept.began_at)[:17]  # to the millisecond
    file = progress.home() / "rounds" / f"{coding.key.replace(' ', '-')}-{begun}.py"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(coding.page, "utf-8")
    return file


def _show(coding: CodeRound) -> None:
    task = coding.task
    rule(task.title)
    for paragraph in rendering.task_text(task.text, task.asks).splitlines():
        _say(paragraph)
    if seen := task.seen:
        _say_seen(seen)
    print(f"\n{task.review.numbered if task.review else task.page}\n")
    if task.review:
        say("What may be wrong, each at most once, and most of it is not:")
        for letter, cause in task.review.causes.items():
            say(cause, f"  {letter}) ")


def _say(paragraph: str) -> None:
    """Say a paragraph, or an item of a list, whose further lines hang below its first."""
    if paragraph.startswith("- "):
        say(paragraph[2:], "- ")
    else:
        say(paragraph)


def _say_seen(seen: Observed) -> None:
    print("\nA run of it shows:")
    for curve in seen.curves:
        values = " ".join(f"{value:.4g}" for value in curve.values)
        say(f"{curve.quantity}, by {curve.over}: {values}", "- ")
    for name, number in seen.numbers.items():
        say(f"{name}: {number:.4g}", "- ")


def _edit(file: Path) -> None:
    """Open the file in $EDITOR; where there is none, say where the file is."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor or not sys.stdin.isatty():
        print(f"Open it in your editor, save it, and come back here:\n{file}", flush=True)
        return
    try:
        subprocess.run([*shlex.split(editor), str(file)], check=False)
    except (OSError, ValueError) as error:
        say(f"$EDITOR is {editor!r}, and cannot be run: {error}. Open the file yourself:")
        print(file, flush=True)


def _tell(coding: CodeRound, ended: bool) -> None:
    """Print the report; good code only once the round is over, for one that was left goes on."""
    rule("report")
    print(coding.end() if ended else coding.report, flush=True)
    task = f" --task {coding.task_id}" if coding.task_id else ""
    again = f"amp-lessons interview code --minutes {coding.minutes} --seed {coding.seed}{task}"
    if not ended:
        say(f"It goes on where you left it: {again}")
        say("Its word done gives it up, and shows what there was to find.")
        return
    rule("good code")
    print(f"{coding.task.answer}\n")
    say(coding.task.why)
    say(f"The same round anew: {again}")
