"""Watching every call, in the face of other threads, late operations and a changed PyTorch."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from amp_lessons import autocast
from amp_lessons.autocast.running import watch


class Names:
    """An observer that notes names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def called(self, call, run):
        self.names.append(call.name)
        return run(False)


def test_calls_are_seen_once_under_their_own_name_and_only_inside_the_block():
    observer, x = Names(), torch.randn(2, 2)
    x.relu()
    with watch.watching(observer, python_below=False):
        (x @ x).softmax(-1).divide(2)
        with watch.unwatched():
            x.sigmoid()
    x.tanh()
    assert observer.names == ["aten::matmul", "aten::softmax.int", "aten::divide.Tensor"]


def test_an_operation_that_is_defined_later_is_seen_too():
    autocast.record(nn.ReLU(), torch.randn(2))
    library = torch.library.Library("amp_lessons_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")

    class Twice(nn.Module):
        def forward(self, x):
            return torch.ops.amp_lessons_test.twice(x)

    assert [row.op for row in autocast.record(Twice(), torch.randn(2)).rows] == ["amp_lessons_test::twice"]
    library._destroy()


def test_operations_are_registered_once(monkeypatch):
    autocast.record(nn.ReLU(), torch.randn(2))
    monkeypatch.setattr(watch, "_watching_kernel", lambda name: pytest.fail(f"{name} is registered again"))
    assert autocast.record(nn.ReLU(), torch.randn(2)).rows


def test_another_thread_waits_and_gets_rows_of_its_own():
    entered, leave = threading.Event(), threading.Event()
    ledgers = {}

    class Slow(nn.Module):
        def forward(self, x):
            entered.set()
            leave.wait(10)
            return x.sigmoid()

    def slow() -> None:
        ledgers["slow"] = autocast.record(Slow(), torch.randn(2))

    def quick() -> None:
        ledgers["quick"] = autocast.record(nn.ReLU(), torch.randn(2))

    threads = [threading.Thread(target=slow), threading.Thread(target=quick)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    torch.randn(2).tanh()
    leave.set()
    for thread in threads:
        thread.join()
    assert [row.op for row in ledgers["slow"].rows] == ["aten::sigmoid"]
    assert [row.op for row in ledgers["quick"].rows] == ["aten::relu"]


@pytest.fixture
def fresh_key():
    """Ask for the key again, and forget the answer that was given under a patch."""
    watch._key.cache_clear()
    yield
    watch._key.cache_clear()


def test_a_pytorch_without_the_key_is_refused(monkeypatch, fresh_key):
    monkeypatch.setattr(watch, "_KEY_NAME", "NoSuchKey")
    with pytest.raises(autocast.UnreadablePyTorchError, match="no dispatch key NoSuchKey"):
        autocast.record(nn.ReLU(), torch.randn(2))


def test_a_pytorch_that_runs_autocast_first_is_refused(monkeypatch, fresh_key):
    monkeypatch.setattr(watch, "_KEY_NAME", "AutogradCPU")
    with pytest.raises(autocast.UnreadablePyTorchError, match="runs autocast before AutogradCPU"):
        autocast.record(nn.ReLU(), torch.randn(2))
