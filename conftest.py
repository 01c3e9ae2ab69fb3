"""Keep tests, and the notebooks' kernels, away from the learner's own progress; say which run in which tier.

`make quick`, `make test` and `make test-all` take the same tests every time. What `make test` leaves out has
the mark ``thorough``, or is one of the many cases of a test marked ``few``.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import tempfile
from collections import defaultdict
from typing import Any

import pytest

_HOME = pytest.StashKey[tempfile.TemporaryDirectory]()
_WITHOUT_CHROMIUM = pytest.StashKey[list[str]]()
_OF_AN_EXERCISE = re.compile(r"(?P<file>tests/course/exercises/test_attempts\w*\.py)::\w+\[(?P<id>\w+)")


def pytest_configure(config: pytest.Config) -> None:
    """Give this process, and the kernels it starts, an empty home for progress."""
    gc.disable()  # until all is collected, which takes a third longer with it
    config.stash[_WITHOUT_CHROMIUM] = []
    config.pluginmanager.register(_Skipped(config.stash[_WITHOUT_CHROMIUM]))
    config.stash[_HOME] = tempfile.TemporaryDirectory(prefix="amp-lessons-")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what `command &` in a script starts
    os.environ["AMP_LESSONS_HOME"] = config.stash[_HOME].name
    os.environ["TQDM_DISABLE"] = "1"  # what a bar says differs from run to run, and outputs are compared


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it, and say last of all which tests there was no browser for."""
    config.stash[_HOME].cleanup()
    skipped = len(config.stash[_WITHOUT_CHROMIUM])
    if skipped and "PYTEST_XDIST_WORKER" not in os.environ:
        print(
            f"{skipped} tests in a browser were skipped: there is no Chromium here (apt-get install chromium)"
        )


class _Skipped:
    """The tests that were skipped for want of Chromium, in ``names``."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note them."""
        if report.skipped and "needs Chromium" in str(report.longrepr):
            self._names.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is thorough
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of a test marked ``few`` as thorough, but for so many of them at equal distances."""
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in cases.values():
        mark = of_one_test[0].get_closest_marker("few")
        assert mark is not None
        kept = min(mark.args[0] if mark.args else 1, len(of_one_test))
        chosen = {number * len(of_one_test) // kept for number in range(kept)}
        # by name: where tests are shuffled, they are the same ones
        for number, item in enumerate(sorted(of_one_test, key=lambda item: item.nodeid)):
            if number not in chosen:
                item.add_marker(pytest.mark.thorough)


def pytest_collection_finish() -> None:
    """Take what was collected, which stays to the end, out of the garbage collector's sight."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out files of tests whole, with ``--dist loadfile``, but for the attempts at each exercise."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class InFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            found = _OF_AN_EXERCISE.match(nodeid)
            return f"{found['file']} {found['id']}" if found else nodeid.partition("::")[0]

    return InFiles(config, log)
