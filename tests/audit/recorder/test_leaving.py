"""Whatever ends a training: PyTorch is as it was, and what was seen until then can be read."""

from __future__ import annotations

import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from amp_lessons import audit
from amp_lessons.audit.numbers.frames import FrameRecorder
from amp_lessons.audit.recorder.autograd import AutogradCalls
from amp_lessons.audit.recorder.on_tensors import _Spies
from amp_lessons.audit.recorder.optimizers import GradientCalls, OptimizerCalls
from amp_lessons.audit.recorder.scalers import ScalerCalls
from amp_lessons.audit.recorder.spies import patches
from tests.audit.trainings import apply

pytestmark = pytest.mark.usefixtures("one_thread")

OWNERS = [(owner, name) for owner, name, _ in patches()]
_SPIES = _Spies(None)  # type: ignore[arg-type]
for replaced in (_SPIES.methods, _SPIES.functions):
    OWNERS += [(owner, name) for owner, name, _ in replaced()]
OWNERS += [(torch, "compile"), (torch.jit, "script"), (warnings, "warn"), (warnings, "_showwarnmsg")]


def everything() -> list[Any]:
    """Return what a watch replaces or adds to, as it is now: the objects themselves, and numbers of hooks."""
    methods = [vars(owner).get(name, "inherited") for owner, name in OWNERS]
    known = [*sorted(vars(module_hooks).items()), *sorted(vars(optimizer_hooks).items())]
    hooks = [len(v) for k, v in known if k.startswith("_global") and isinstance(v, dict)]
    stacks = [len(_get_current_function_mode_stack()), len(_get_current_dispatch_mode_stack())]
    return [*methods, *hooks, *stacks, sys.excepthook, threading.excepthook]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = everything()
    yield
    for was, now in zip(before, everything(), strict=True):
        assert was is now or was == now


def train(steps: int = 3, at_step: Callable[[int], Any] = lambda step: None) -> nn.Module:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(steps):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2))
        apply(loss, optimizer, scaler)
        at_step(step)
    return model


class OwnError(Exception):
    """Somebody's own exception."""


@pytest.mark.parametrize(
    "error",
    [OwnError("oh"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()],
    ids=lambda e: type(e).__name__,
)
def test_an_exception_passes_through_and_the_report_exists(error):
    def raise_in_the_second(step: int) -> None:
        if step == 1:
            raise error

    with pytest.raises(type(error)) as caught, audit.watch() as seen:
        train(at_step=raise_in_the_second)
    assert caught.value is error
    assert traceback.extract_tb(caught.tb)[-1].line == "raise error"
    assert len(seen.steps) == 2
    assert seen.report.ended.startswith(type(error).__name__)
    assert not seen.report.not_seen


def test_an_exception_of_pytorch_is_its_own():
    model, inputs = nn.Linear(4, 2), torch.ones(3, 5)
    with pytest.raises(RuntimeError) as alone:
        model(inputs)
    with pytest.raises(RuntimeError) as watched, audit.watch(model):
        model(inputs)
    assert str(alone.value) == str(watched.value)


def test_a_watch_inside_another_is_refused_and_the_outer_goes_on():
    with audit.watch() as seen:
        with pytest.raises(RuntimeError, match=r"another audit\.watch"), audit.watch():
            pass
        train()
    assert len(seen.steps) == 3
    with audit.watch() as again:
        train()
    assert len(again.steps) == 3


def test_arguments_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match=r"nn\.Module"), audit.watch(torch.ones(2)):
        pass
    with pytest.raises((TypeError, ValueError)), audit.watch(every=0):
        pass
    with audit.watch():
        pass


@pytest.mark.parametrize("threads", [1, 2])
def test_trainings_in_other_threads_are_seen(threads):
    with audit.watch() as seen:
        workers = [threading.Thread(target=train, args=(20,)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert len(seen.steps) == 20 * threads
    assert seen.report.passed
    assert not seen.report.not_seen


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_forked_child_may_train_on():
    with audit.watch() as seen:
        train()
        child = os.fork()
        if child == 0:
            try:
                torch.set_num_threads(1)  # the others did not come along
                train()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        train()
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(seen.steps) == 6


def test_an_error_of_a_spy_is_told_and_never_raised(monkeypatch):
    def broken(*args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("a spy's own")

    for name in ("loss_given", "updated", "unscaling"):
        monkeypatch.setattr(ScalerCalls, name, broken)
    monkeypatch.setattr(AutogradCalls, "_before_backward", broken)
    monkeypatch.setattr(GradientCalls, "cleared", broken)
    monkeypatch.setattr(OptimizerCalls, "begins", broken)
    with audit.watch() as seen:
        train()
    assert any("a spy's own" in each for each in seen.report.not_seen)
    assert not seen.report.findings


def test_an_error_in_looking_at_modules_is_told(monkeypatch):
    def broken(*args: Any) -> None:
        raise ZeroDivisionError("a hook's own")

    for name in ("_look_at", "_arrived"):
        with monkeypatch.context() as patched, audit.watch() as seen:
            patched.setattr(FrameRecorder, name, broken)
            train()
        assert any("a hook's own" in each for each in seen.report.not_seen)
        assert len(seen.steps) == 3


def test_what_is_left_when_the_watch_ends_is_no_hook_on_the_model():
    with audit.watch():
        model = train()
    for part in model.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
        assert not part._backward_hooks
    assert all(not p._backward_hooks for p in model.parameters())
