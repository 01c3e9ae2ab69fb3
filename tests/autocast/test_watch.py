"""Watching every call, in the face of other threads, late operations and a changed PyTorch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from amp_lessons import autocast
from amp_lessons.autocast.running import watch
from tests.measure.architectures import Made


def test_calls_are_seen_once_under_their_own_name_and_only_inside_the_block():
    names, x = [], torch.randn(2, 2)

    def called(call, run):
        names.append(call.name)
        return run(False)

    x.relu()
    with watch.watching(SimpleNamespace(called=called), python_below=False):
        (x @ x).softmax(-1).divide(2)
        with watch.unwatched():
            x.sigmoid()
    x.tanh()
    assert names == ["aten::matmul", "aten::softmax.int", "aten::divide.Tensor"]


def test_an_operation_that_is_defined_later_is_seen_too_and_each_is_registered_once(monkeypatch):
    autocast.record(nn.ReLU(), torch.randn(2))
    library = torch.library.Library("amp_lessons_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

    twice = Made(lambda self, x: torch.ops.amp_lessons_test.twice(x))
    assert [row.op for row in autocast.record(twice, torch.randn(2)).rows] == ["amp_lessons_test::twice"]
    library._destroy()
    monkeypatch.setattr(watch, "_watching_kernel", lambda name: pytest.fail(f"{name} is registered again"))
    assert autocast.record(nn.ReLU(), torch.randn(2)).rows


def test_another_thread_waits_and_gets_rows_of_its_own():
    entered, leave = threading.Event(), threading.Event()

    def forward(self, x):
        entered.set()
        leave.wait(10)
        return x.sigmoid()

    with ThreadPoolExecutor() as threads:
        slow = threads.submit(autocast.record, Made(forward), torch.randn(2))
        assert entered.wait(10)
        quick = threads.submit(autocast.record, nn.ReLU(), torch.randn(2))
        torch.randn(2).tanh()
        leave.set()
    assert [row.op for row in slow.result().rows] == ["aten::sigmoid"]
    assert [row.op for row in quick.result().rows] == ["aten::relu"]


@pytest.mark.parametrize(
    ("key", "words"),
    [("NoSuchKey", "no dispatch key NoSuchKey"), ("AutogradCPU", "runs autocast before AutogradCPU")],
)
def test_a_pytorch_without_the_key_and_one_that_runs_autocast_first_are_refused(monkeypatch, key, words):
    watch._key.cache_clear()
    monkeypatch.setattr(watch, "_KEY_NAME", key)
    with pytest.raises(autocast.UnreadablePyTorchError, match=words):
        autocast.record(nn.ReLU(), torch.randn(2))
    watch._key.cache_clear()
