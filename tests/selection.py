"""Which of the attempts at exercises a run takes, and which tests stay together on one worker.

There are over a thousand attempts, and each is judged in a process of its own. A plain ``pytest`` runs all
that it is given. ``make test`` sets AMP_LESSONS_SHARE to ``auto``: all attempts at an exercise whose content
has changed run, and of the others one eighth, the next one with the next commit. The header of the run names
the share and how to run the same again. A test that is to be shared out has the mark
``attempt("exercise_id")``, or ``attempt("lesson 03")`` where it looks at a whole lesson.

Other tests with many cases that take long have the mark ``in_turn``: of their cases an eighth runs as well,
at least one, and all of them where the test's file has changed.
"""

from __future__ import annotations

import ast
import datetime
import gc
import os
import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SHARE, CHANGED = "AMP_LESSONS_SHARE", "AMP_LESSONS_CHANGED"
SHARES = 8
_EXERCISES = Path("amp_lessons", "exercises")


@dataclass(frozen=True)
class Choice:
    """The ``number``-th of ``of`` shares, from 0, and all attempts at the ``changed`` exercises."""

    number: int
    of: int
    changed: frozenset[str] = frozenset()
    why: str = ""

    def __str__(self) -> str:
        if self.of == 1:
            return "attempts at exercises: all"
        whole = f"; all of {', '.join(sorted(self.changed))}" if self.changed else ""
        again = f"{SHARE}={self.number + 1}/{self.of} {CHANGED}={','.join(sorted(self.changed))}"
        return f"attempts at exercises: share {self.number + 1} of {self.of}{self.why}{whole}; again: {again}"

    def takes(self, of_what: str, index: int, cases: int = SHARES) -> bool:
        """Whether the ``index``-th of ``cases`` is run, of a test of an exercise, or of a test file."""
        shares = min(self.of, cases)  # where there are fewer cases than shares, each run takes one
        mine = (index + zlib.crc32(of_what.encode())) % shares == self.number % shares
        return mine or of_what in self.changed


def choice(asked: str, changed: str | None = None, root: Path = ROOT) -> Choice:
    """Return what the two variables of the environment ask for. Raises UsageError for what is no share."""
    if asked == "auto":
        number, why = _turn(root)
        return Choice(number % SHARES, SHARES, what_changed(root), why)
    found = re.fullmatch(r"(\d+)/(\d+)", asked or "1/1")
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise pytest.UsageError(f"{SHARE} is 'auto' or a share such as 3/{SHARES}, not {asked!r}")
    return Choice(int(found[1]) - 1, int(found[2]), frozenset(filter(None, (changed or "").split(","))))


def _turn(root: Path) -> tuple[int, str]:
    """Count commits; days where git does not know them all, so that each share has its turn there, too."""
    if _git(root, "rev-parse", "--is-shallow-repository") == "false":
        return int(_git(root, "rev-list", "--count", "HEAD") or 0), " by the number of commits"
    return datetime.date.today().toordinal(), " by the date"


def what_changed(root: Path = ROOT) -> frozenset[str]:
    """Name the exercises and test files that differ from the main branch, or on it from the last commit.

    What an exercise consists of is its folder, and what its modules import of ``amp_lessons.exercises`` that
    not every exercise does. Nothing has changed where git does not know.
    """
    names = _differing(root)
    files = set(map(Path, names))
    of_exercises = {name for name, sources in contents(root).items() if files & sources}
    return frozenset(of_exercises | {name for name in names if re.fullmatch(r"tests/.*test_\w+\.py", name)})


def _differing(root: Path) -> list[str]:
    base = _base(root)
    if not base:
        return []
    differing = _git(root, "diff", "--name-only", base).splitlines()
    return differing + _git(root, "ls-files", "--others", "--exclude-standard").splitlines()


def _base(root: Path) -> str:
    head = _git(root, "rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        forked = _git(root, "merge-base", "HEAD", branch)
        if forked and forked != head:
            return forked
    return _git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")


def _git(root: Path, *arguments: str) -> str:
    """Return what git says, "" where it has nothing to say or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def contents(root: Path = ROOT) -> dict[str, set[Path]]:
    """Return the files, relative to ``root``, that make each exercise what it is."""
    folders = [card.parent for card in sorted((root / _EXERCISES).glob("[!_]*/card.md"))]
    own = {folder.name: {p.relative_to(root) for p in folder.glob("*.*")} for folder in folders}
    used = {name: _all_imported(root, files) for name, files in own.items()}
    by_all = set.intersection(*used.values()) if used else set()
    return {name: own[name] | (used[name] - by_all) for name in own}


def _all_imported(root: Path, files: set[Path]) -> set[Path]:
    """Return the modules among the exercises that some files import, directly or by others."""
    seen: set[Path] = set()
    waiting = [each for each in files if each.suffix == ".py"]
    while waiting:
        imported = set(_imported(root, waiting.pop())) - seen
        seen |= imported
        waiting += imported
    return seen


def _imported(root: Path, file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse((root / file).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                stem = Path(*name.split("."))
                if stem.is_relative_to(_EXERCISES) and (root / stem).with_suffix(".py").is_file():
                    yield stem.with_suffix(".py")


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


def pytest_configure(config: pytest.Config) -> None:
    """Choose once, before there are workers: they take what they find in the environment."""
    chosen = choice(os.environ.get(SHARE, ""), os.environ.get(CHANGED))
    os.environ[SHARE] = f"{chosen.number + 1}/{chosen.of}"
    os.environ[CHANGED] = ",".join(sorted(chosen.changed))
    config.stash[_CHOICE] = chosen


def pytest_report_header(config: pytest.Config) -> str:
    """Say which share runs, and how to run the same again."""
    return str(config.stash[_CHOICE])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has no turn."""
    chosen = config.stash[_CHOICE]
    cases, counted = Counter(map(_test_of, items)), Counter[tuple[str, str]]()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        test, of_what = _test_of(item)
        few = cases[test, of_what] if item.get_closest_marker("in_turn") else SHARES
        takes = not of_what or chosen.takes(of_what, counted[test, of_what], few)
        counted[test, of_what] += 1
        (kept if takes else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _test_of(item: pytest.Item) -> tuple[str, str]:
    """Name an item's test, and of what it is a case: of an exercise, of a file of tests, or of nothing."""
    test = item.nodeid.partition("[")[0]
    if attempt := item.get_closest_marker("attempt"):
        return test, attempt.args[0]
    return test, test.partition("::")[0] if item.get_closest_marker("in_turn") else ""


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
