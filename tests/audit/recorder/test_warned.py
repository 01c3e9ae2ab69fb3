"""Warnings under a watch name the lines that they name without one."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from amp_lessons import audit


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)


def schedule_before_the_optimizer() -> None:
    schedule = torch.optim.lr_scheduler.StepLR(_optimizer(), 1)
    schedule.step()  # warns


def schedule_told_the_epoch() -> None:
    optimizer = _optimizer()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    schedule.step(1)  # warns


def chained_schedules() -> None:
    optimizer = _optimizer()
    schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) for _ in range(2)]
    for schedule in schedules:
        schedule.step()  # warns


def own_warning_of_a_callers_line() -> None:
    def check() -> None:
        warnings.warn("the caller's", DeprecationWarning, stacklevel=2)

    check()  # warns


CASES = {
    "a schedule before the optimizer": schedule_before_the_optimizer,
    "a schedule told the epoch": schedule_told_the_epoch,
    "chained schedules": chained_schedules,
    "an old scaler": lambda: torch.cuda.amp.GradScaler(enabled=False),  # warns
    "an old autocast": lambda: torch.cpu.amp.autocast(),  # warns
    "autocast in a dtype that it has not": lambda: torch.autocast("cpu", dtype=torch.float64),  # warns
    "C++": lambda: torch.tensor([1j]).to(torch.float32),  # warns
    "one's own": lambda: warnings.warn("one's own", UserWarning, 1),  # warns
    "one's own of a caller's line": own_warning_of_a_callers_line,
}


def warned_of(run: Callable[[], None]) -> list[tuple[str, int, type, str]]:
    always, before = torch.set_warn_always, torch.is_warn_always_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        always(True)  # also what C++ says only once
        run()
        always(before)
    return [(each.filename, each.lineno, each.category, str(each.message)) for each in caught]


@pytest.mark.parametrize("name", CASES)
def test_a_warning_names_the_same_line_as_without_a_watch(name):
    alone = warned_of(CASES[name])
    with audit.watch():
        watched = warned_of(CASES[name])
    assert watched == alone
    assert alone
    assert all(linecache.getline(file, line).endswith("# warns\n") for file, line, *_ in alone)


def test_what_a_warning_may_be_given_it_may_be_given_under_a_watch():
    with audit.watch():
        with pytest.warns(RuntimeWarning, match="by names"):
            warnings.warn(message="by names", category=RuntimeWarning, stacklevel=1, source=None)
        with pytest.warns(UserWarning, match="an object"):
            warnings.warn(UserWarning("an object"), stacklevel=1)
        with pytest.raises(TypeError):
            warnings.warn(stacklevel=1)  # type: ignore[call-overload]
