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

READS = ("item", "tolist", "__float__", "__bool__", "__int__", "cpu", "numpy")


def train(steps: int, device: str, at_step: Counter[int], now: list[int], fused: bool = False) -> None:
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
            caller = sys._getframe(1).f_code
            passed_on = caller.co_name == "_called"  # the training's own call, which a spy has heard
            if (
                f"{os.sep}audit{os.sep}" in caller.co_filename
                and f"{os.sep}tests{os.sep}" not in caller.co_filename
            ):
                counted[now[0]] += not passed_on
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
        train(10, "cpu", counted, now)
        now[0] = -1
    assert counted[0] > 0
    assert {step for step in range(10) if counted[step]} <= {0, 4, 8}
    assert [step.happened for step in seen.steps] == [True] * 10
    assert all(step.scale == 1024.0 and step.loss > 0 for step in seen.steps)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("fused", [False, True])
def test_nothing_makes_a_gpu_wait_between_sampled_steps(fused):
    counted: Counter[int] = Counter()
    now = [0]
    with counting_reads(counted, now), audit.watch(every=4) as seen:
        train(10, "cuda", counted, now, fused)
        now[0] = -1
    assert {step for step in range(10) if counted[step]} <= {0, 4, 8}
    assert len(seen.steps) == 10
    assert seen.report.passed
