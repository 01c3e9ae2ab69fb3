"""On a device, nothing is read between sampled steps, for that would make the training wait."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit
from amp_lessons.audit.recorder import later

CLOSELY = {0, 3, 4, 7, 8}  # every fourth, from when the optimizer's step before it is over
READS = ("item", "tolist", "__float__", "__bool__", "__int__", "cpu", "numpy")


def train(steps: int, device: str, now: list[int], fused: bool = False) -> None:
    layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)  # small: a skipped step would be looked at too
    average = [p.detach().clone() for p in model.parameters()]
    for step in range(steps):
        now[0] = step
        with torch.autocast(device, dtype=torch.float16):
            loss = F.cross_entropy(
                model(torch.randn(4, 8, device=device)), torch.zeros(4, dtype=torch.long, device=device)
            )
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        for mean, weights in zip(average, model.parameters(), strict=True):
            mean.lerp_(weights.detach(), 0.01)


@contextmanager
def counting_reads(counted: Counter[int], now: list[int]) -> Iterator[None]:
    """Count by step what the audit itself reads, and not what the training does."""

    def counting(name: str, original):
        def read(self: Tensor, *args, **kwargs):
            frame = sys._getframe(1)
            while frame.f_code.co_name in ("spied", "_called"):  # they pass on what somebody calls
                frame = frame.f_back
            file = frame.f_code.co_filename
            own = f"{os.sep}audit{os.sep}" in file and f"{os.sep}tests{os.sep}" not in file
            counted[now[0]] += own
            return original(self, *args, **kwargs)

        return read

    with pytest.MonkeyPatch.context() as patched:
        for name in READS:
            patched.setattr(Tensor, name, counting(name, getattr(Tensor, name)))
        yield


def test_nothing_is_read_between_sampled_steps(monkeypatch):
    monkeypatch.setattr(later, "lies_here", lambda tensor: False)
    counted: Counter[int] = Counter()
    now = [0]
    with counting_reads(counted, now), audit.watch(every=4) as seen:
        train(10, "cpu", now)
        now[0] = -1
    assert counted[0] > 0
    assert {step for step in range(10) if counted[step]} <= CLOSELY
    assert [step.happened for step in seen.steps] == [True] * 10
    assert all(step.scale == 1024.0 and step.loss > 0 for step in seen.steps)


def test_nothing_is_read_of_steps_that_are_captured_as_a_graph(monkeypatch):
    monkeypatch.setattr(later, "lies_here", lambda tensor: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    counted: Counter[int] = Counter()
    now = [0]
    with counting_reads(counted, now), audit.watch(every=1) as seen:
        train(3, "cpu", now)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        now[0] = -1
    assert {step for step in range(3) if counted[step]} == set()
    assert len(seen.steps) == 3
    assert any("captured as a CUDA graph" in each for each in seen.report.not_seen)
    assert not any("trouble" in each for each in seen.report.not_seen)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_watch_lets_a_gpu_capture_a_step_as_a_graph():
    model = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    graph, aside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with audit.watch(model, every=1) as seen:
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            before = [step() for _ in range(3)]
        torch.cuda.current_stream().wait_stream(aside)
        with torch.cuda.graph(graph):
            loss = step()
        for _ in range(3):
            graph.replay()
    assert loss < before[-1]
    assert len(seen.steps) == 4
    assert any("captured as a CUDA graph" in each for each in seen.report.not_seen)
    assert seen.report.passed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("fused", [False, True])
def test_nothing_makes_a_gpu_wait_between_sampled_steps(fused):
    counted: Counter[int] = Counter()
    now = [0]
    with counting_reads(counted, now), audit.watch(every=4) as seen:
        train(10, "cuda", now, fused)
        now[0] = -1
    assert {step for step in range(10) if counted[step]} <= CLOSELY
    assert len(seen.steps) == 10
    assert seen.report.passed
