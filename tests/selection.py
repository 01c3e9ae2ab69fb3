"""Which tests a run takes, and which of them stay together on one worker.

A plain ``pytest`` runs all that it is given. ``make test`` sets AMP_LESSONS_TURN to ``auto`` and takes

- every notebook, the tests of ``EVERY_TIME``, and every test with the mark ``every_time``;
- each file of tests whose content differs from the main branch's, or on it from that of the last commit:
  ``tests/contents.py`` says what a file rests on. Of the others an eighth, the next with the next commit;
- of a test with many cases that take long, marked ``in_turn``, an eighth where its file runs, at least one,
  and all where the file itself differs;
- of the thousand attempts at exercises, each judged in a process of its own and marked
  ``attempt("exercise_id")``, all at an exercise whose content differs, and an eighth of the others.

The header of a run says what it took, and how to run the same again.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import zlib
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.contents import Contents

ROOT = Path(__file__).parents[1]
TURN, SINCE, CHOSEN = "AMP_LESSONS_TURN", "AMP_LESSONS_SINCE", "AMP_LESSONS_CHOSEN"
SHARES = 8
EVERY_TIME = ("notebooks/", "tests/views/")  # views drive each of their controls
EVERYTHING = {"conftest.py", "constraints.txt", "pyproject.toml", "tests/contents.py", "tests/selection.py"}
_EXERCISES = "amp_lessons/exercises/"


@dataclass(frozen=True)
class Choice:
    """What a run takes, of the files of ``tests`` in their order; without a ``turn`` everything.

    ``edited`` are the exercises and the files of tests that differ themselves since the commit ``since``,
    ``touched`` the files of tests that rest on something that does.
    """

    turn: int | None = None
    since: str = ""
    edited: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.turn is None:
            return "tests: all"
        again = f"{TURN}={self.turn} {SINCE}={self.since}"
        touched = (
            f"{len(self.touched)} of {len(self.tests)} files that rest on what differs from {self.since}"
        )
        return (
            f"tests: {touched}, and share {self.turn % SHARES + 1} of {SHARES} of the others; again: {again}"
        )

    def takes_file(self, file: str) -> bool:
        """Whether the tests of a file run: those of neighbours have other turns."""
        if (
            self.turn is None
            or file in self.touched
            or file.startswith(EVERY_TIME)
            or file not in self._place
        ):
            return True
        return self._place[file] % SHARES == self.turn % SHARES

    @cached_property
    def _place(self) -> dict[str, int]:
        return {file: place for place, file in enumerate(self.tests)}

    def takes_attempt(self, exercise: str, index: int) -> bool:
        """Whether the ``index``-th attempt at an exercise runs."""
        return self.turn is None or exercise in self.edited or _has_turn(exercise, index, self.turn)

    def takes_case(self, file: str, index: int, cases: int) -> bool:
        """Whether the ``index``-th of the ``cases`` of a test runs, where its file does."""
        if self.turn is None or file in self.edited:
            return True
        turn = self.turn + self.turn // SHARES  # in each turn of the file, too, it is another one
        return _has_turn(file, index, turn, min(SHARES, cases))


def _has_turn(of_what: str, index: int, turn: int, shares: int = SHARES) -> bool:
    return (index + zlib.crc32(of_what.encode())) % shares == turn % shares


def choice(asked: str, since: str = "", root: Path = ROOT) -> Choice:
    """Return what the two variables of the environment ask for. Raises UsageError for what is no turn."""
    if asked in ("", "all"):
        return Choice()
    if asked != "auto" and not asked.isdecimal():
        raise pytest.UsageError(f"{TURN} is 'auto', 'all' or a number of commits, not {asked!r}")
    if since and not _git(root, "rev-parse", "--verify", "--quiet", f"{since}^{{commit}}"):
        raise pytest.UsageError(f"{SINCE} is a commit, not {since!r}")
    since = _git(
        root, "rev-parse", "--verify", "--quiet", "--short", f"{since}^{{commit}}" if since else _base(root)
    )
    if not since:
        return Choice()  # who does not know what differs runs all
    turn = int(_git(root, "rev-list", "--count", "HEAD") if asked == "auto" else asked)
    return _since(root, turn, since)


def _since(root: Path, turn: int, since: str) -> Choice:
    new = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    differing = {*_git(root, "diff", "--name-only", since).splitlines(), *new}
    files = {*_git(root, "ls-files").splitlines(), *new}
    contents = Contents(root, (each for each in files if (root / each).is_file()))
    tests = tuple(sorted(each for each in contents.files if re.fullmatch(r"tests/.*test_\w+\.py", each)))
    edited = {name for name, content in of_exercises(contents).items() if content & differing}
    touched = [each for each in tests if differing & EVERYTHING or contents.of_tests(each) & differing]
    return Choice(turn, since, tuple(sorted(edited | differing.intersection(tests))), tuple(touched), tests)


def of_exercises(contents: Contents) -> dict[str, set[str]]:
    """Return what each exercise consists of: its folder, and what of their room not all of them use."""
    every = {each for each in contents.files if each.startswith(_EXERCISES)}
    cards = (each for each in every if re.fullmatch(rf"{_EXERCISES}[^_/]\w*/card\.md", each))
    own = {
        Path(card).parent.name: {each for each in every if Path(each).parent == Path(card).parent}
        for card in cards
    }
    shelf = frozenset({f"{_EXERCISES}__init__.py", f"{_EXERCISES}exercise.py"})  # which lead to all of them
    used = {name: contents.of(*files, closed=shelf) & every for name, files in own.items()}
    by_all = set.intersection(*used.values()) if used else set()
    return {name: own[name] | (used[name] - by_all) for name in own}


def _base(root: Path) -> str:
    head = _git(root, "rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        forked = _git(root, "merge-base", "HEAD", branch)
        if forked and forked != head:
            return forked
    return "HEAD~1"


def _git(root: Path, *arguments: str) -> str:
    """Return what git says, "" where it has nothing to say or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


_OF_AN_EXERCISE = re.compile(
    r"(?P<file>[^:]*/test_\w*(?:attempts|mending|other_ways|stand_in)\w*\.py)::\w+\[(?P<id>\w+)"
)


def together(nodeid: str) -> str:
    """Name the group that a test runs with on one worker: its file, or in it the attempts at one exercise."""
    if nodeid.startswith("tests/interview/"):
        return "tests/interview"  # what was proven once is kept
    found = _OF_AN_EXERCISE.match(nodeid)
    return f"{found['file']} {found['id']}" if found else nodeid.partition("::")[0]


_CHOICE = pytest.StashKey[Choice]()
_BY_THEMSELVES = re.compile("attempt|verdicts|every_time")  # tests that run whatever their file does


def pytest_configure(config: pytest.Config) -> None:
    """Choose once, before there are workers: they take what they find in the environment."""
    if os.environ.get("PYTEST_XDIST_WORKER") and CHOSEN in os.environ:
        chosen = Choice(**json.loads(os.environ[CHOSEN]))
    else:
        chosen = choice(os.environ.get(TURN, ""), os.environ.get(SINCE, ""))
        os.environ[CHOSEN] = json.dumps(asdict(chosen))
    config.stash[_CHOICE] = chosen


def pytest_report_header(config: pytest.Config) -> str:
    """Say what runs, and how to run the same again."""
    return str(config.stash[_CHOICE])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what has no turn, unless some of its tests may run all the same: each worker would."""
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(ROOT):
        return None
    file = collection_path.relative_to(ROOT).as_posix()
    if config.stash[_CHOICE].takes_file(file) or _BY_THEMSELVES.search(collection_path.read_text("utf-8")):
        return None
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has no turn."""
    chosen = config.stash[_CHOICE]
    cases, counted = Counter(map(_test_of, items)), Counter[tuple[str, str]]()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        test = _test_of(item)
        (kept if _takes(chosen, item, counted[test], cases[test]) else left_out).append(item)
        counted[test] += 1
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _takes(chosen: Choice, item: pytest.Item, index: int, cases: int) -> bool:
    file = item.nodeid.partition("::")[0]
    if item.get_closest_marker("every_time"):
        return True
    if attempt := item.get_closest_marker("attempt"):
        return chosen.takes_attempt(attempt.args[0], index)
    in_turn = item.get_closest_marker("in_turn")
    return chosen.takes_file(file) and (not in_turn or chosen.takes_case(file, index, cases))


def _test_of(item: pytest.Item) -> tuple[str, str]:
    """Name an item's test, and the exercise that it is an attempt at."""
    attempt = item.get_closest_marker("attempt")
    return item.nodeid.partition("[")[0], attempt.args[0] if attempt else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests in groups, with ``--dist loadgroup``; xdist's own marks say nothing to pytest 9.2."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class InGroups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return InGroups(config, log)


def pytest_collection_finish() -> None:
    """Take all that was imported out of the garbage collector's sight: audits look for models there."""
    gc.collect()
    gc.freeze()
