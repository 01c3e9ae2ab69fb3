"""What the instruments switch for the whole process, when several threads use them at once."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
import torch
from torch import nn

from amp_lessons._base.whole_process import running_eagerly, without_anomaly_detection, without_collecting
from amp_lessons.measure import measure_memory, predict_memory


class Meeting(nn.Module):
    """A model in whose forward pass a thread says that it has come, and waits before it goes on."""

    def __init__(self, come: Event, go: Event) -> None:
        super().__init__()

        def meet() -> None:
            come.set()
            assert go.wait(60)

        self.layer, self.meet = nn.Linear(4, 4), meet  # a function, which no copy of the model copies

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.meet()
        return self.layer(x)


def compiles() -> bool:
    """Say whether ``torch.compile`` compiles."""
    torch.compiler.reset()
    compiled = []

    def backend(graph: Any, _: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    return len(compiled) == 1


@pytest.mark.parametrize("instrument", [predict_memory, measure_memory])
def test_two_that_overlap_leave_every_switch_as_it_was(instrument: Any) -> None:
    import torch._dynamo  # else a model cannot have been compiled, and there is nothing to switch

    come, go = (Event(), Event()), (Event(), Event())
    with torch.autograd.set_detect_anomaly(True, check_nan=False), ThreadPoolExecutor(2) as threads:
        runs = []
        for i in (0, 1):
            runs.append(threads.submit(instrument, Meeting(come[i], go[i]), torch.ones(2, 4)))
            assert come[i].wait(60), runs[i].result()
        for i in (0, 1):  # the first to come is the first to go
            go[i].set()
            runs[i].result()
        assert torch.is_anomaly_enabled()
    assert gc.isenabled()
    assert compiles()


@pytest.mark.parametrize(
    ("switch", "is_on"),
    [
        (running_eagerly, compiles),
        (without_anomaly_detection, torch.is_anomaly_enabled),
        (without_collecting, gc.isenabled),
    ],
)
def test_a_switch_stays_until_the_last_has_left(switch: Any, is_on: Any) -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        first, second = switch(), switch()
        assert is_on()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert not is_on()
        second.__exit__(None, None, None)
        assert is_on()
