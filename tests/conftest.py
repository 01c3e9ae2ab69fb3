"""Keep the tests away from what belongs to the learner, and from each other: a test's chance is its own."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys

import pytest


@pytest.fixture(autouse=True)
def progress_home(tmp_path, monkeypatch):
    """Give each test a progress folder of its own."""
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "progress"))
    return tmp_path / "progress"


@pytest.fixture(autouse=True)
def seeded():
    """Begin each test with the same random numbers: which it draws must not depend on the tests before it."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def out_of_sight():
    """Take what files before this one imported, or left, out of the garbage collector's sight.

    Audits look for models there: what a test sees, and how long it takes, would hang on the files before it.
    Hooks on every optimizer that one has left would allocate in the steps whose memory another counts.
    """
    gc.collect()
    gc.freeze()
    optimizer = sys.modules.get("torch.optim.optimizer")
    if optimizer is not None:
        optimizer._global_optimizer_pre_hooks.clear()
        optimizer._global_optimizer_post_hooks.clear()


@pytest.fixture(scope="session")
def chromium():
    """Return the path of the system's Chromium.

    Without it tests are skipped, or fail where AMP_LESSONS_REQUIRE_BROWSER is set.
    """
    from tools.browser.chromium import NAMES, find_chromium

    found = find_chromium()
    if found is None:
        complaint = f"needs Chromium: none of {', '.join(NAMES)} is installed"
        if os.environ.get("AMP_LESSONS_REQUIRE_BROWSER"):
            pytest.fail(complaint)
        pytest.skip(complaint)
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    """Run one headless Chromium for all tests of this process: Playwright bears no second one beside it."""
    from tools.browser.chromium import launch_chromium

    with launch_chromium(chromium) as browser:
        yield browser


@pytest.fixture(scope="module")
def no_loop_runs():
    """Let a module run event loops: that of a browser of tests before it counts as running."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)
