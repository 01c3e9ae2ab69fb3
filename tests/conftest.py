"""Keep the tests away from what belongs to the learner, and from each other: a test's chance is its own."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
from types import FunctionType

import pytest


def pytest_addoption(parser):
    parser.addoption("--write-golden", action="store_true", help="write the files in tests/**/golden anew")


@pytest.fixture
def golden(request):
    """Hold texts against the files of their names in ``golden``, beside the test."""
    folder = request.path.parent / "golden"

    def hold(name, text):
        file = folder / name
        text = "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
        if request.config.getoption("write_golden"):
            folder.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
        assert file.is_file(), f"there is no {file}: pytest --write-golden writes it"
        assert text == file.read_text("utf-8"), "if it is meant: pytest --write-golden, and look at the diff"

    return hold


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


@pytest.fixture(autouse=True)
def accelerate_forgets():
    """Forget what accelerate was asked for: it keeps that for the process, where an audit reads it."""
    yield
    if state := sys.modules.get("accelerate.state"):
        state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module", autouse=True)
def out_of_sight():
    """Take what files before this one imported, or left, out of the garbage collector's sight.

    Audits look for models there: what a test sees, and how long it takes, would hang on the files before it.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def pytorch_as_it_came():
    """Refuse a file of tests that leaves PyTorch replaced or watched: those after it would fail instead."""
    yield
    if "torch.optim.optimizer" in sys.modules:
        until = time.monotonic() + 10.0  # a view's thread may still predict
        while (left := list(_left_in_pytorch())) and time.monotonic() < until:
            time.sleep(0.1)
        assert not left


def _left_in_pytorch():
    """Yield what code of ours stands in PyTorch's classes, and which hooks and modes are on."""
    import torch
    from torch.optim import optimizer

    for owner in (torch.amp.GradScaler, torch.autocast, torch.optim.Optimizer, torch.nn.Module, torch.Tensor):
        for name, value in vars(owner).items():
            if isinstance(value, FunctionType) and "site-packages" not in value.__code__.co_filename:
                yield f"{owner.__name__}.{name}"
    yield from optimizer._global_optimizer_pre_hooks.values()
    yield from optimizer._global_optimizer_post_hooks.values()
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        yield "a mode"
    if "torch._dynamo" in sys.modules and torch._dynamo.eval_frame._stance.stance != "default":
        yield "a stance of the compiler"
    if not torch.is_grad_enabled() or torch.get_default_dtype() != torch.float32:
        yield "a setting"


@pytest.fixture(scope="module")
def one_thread():
    """Compute on one thread: of tiny tensors a pool only waits, beside other processes of tests."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def taken_along(request):
    """Pickle by value what a file of tests defines: each rank would import it, and pytest, in seconds."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


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
