"""What is seen of a training on a test bed: weights that a cache keeps, and calls by any spelling."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.course.exercises.loops_there import Log, spying


def _log(*parameters: torch.nn.Parameter) -> Log:
    log = Log()
    log.watch(torch.nn.ParameterList([*parameters, torch.nn.Parameter(torch.zeros(1))]))
    return log


def test_stale_weights_are_noticed():
    layer = torch.nn.Linear(4, 4)
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.float16):
        before = layer(inputs)
        assert not is_stale(layer, inputs, before)
        with torch.no_grad():
            layer.weight.mul_(1.5)
        assert is_stale(layer, inputs, layer(inputs)), "the cache still holds the old weights"
        torch.clear_autocast_cache()
        assert not is_stale(layer, inputs, layer(inputs))


def test_spies_leave_every_class_as_it_was():
    owners = [torch.amp.GradScaler, torch.autocast, torch.optim.Optimizer, torch.nn.Module, torch.Tensor]
    before = [dict(vars(owner)) for owner in owners]
    during = []

    def fail_while_spying():
        with spying(_log()):
            during.extend(dict(vars(owner)) for owner in owners)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_while_spying()
    assert during[0] != before[0]
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="cuda means cuda here")
def test_cuda_means_the_device_there_is():
    log = _log()
    with spying(log):
        scaler = torch.cuda.amp.GradScaler()
        assert scaler.is_enabled()
        with torch.autocast("cuda"):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16
        with torch.cuda.amp.autocast(dtype=torch.bfloat16):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        assert torch.ones(1).cuda().device.type == "cpu"
        assert torch.nn.Linear(1, 1).to(torch.device("cuda:0")).weight.device.type == "cpu"
    assert log.cuda == {"GradScaler", "autocast", "cuda", "to"}
    assert {"torch.cuda.amp.GradScaler", "torch.cuda.amp.autocast"} == log.old_spellings


def test_subclasses_and_early_imports_of_the_scaler_are_seen():
    class Own(torch.amp.GradScaler):
        pass

    early = torch.GradScaler
    parameter = torch.nn.Parameter(torch.ones(1))
    log = _log(parameter)
    with spying(log):
        for kind in (Own, early):
            kind("cpu").scale(parameter.sum()).backward()
    assert [call["name"] for call in log.before] == ["GradScaler", "scale"] * 2
