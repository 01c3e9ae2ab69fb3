"""Nothing is compiled in a check, whenever and however the learner asked for it."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.exercises.containment.stand_ins import not_compiling


def refuse(graph, inputs):
    raise NotImplementedError("something was compiled")


@torch.compile(backend=refuse)
def compiled_before(x):
    return x + 1


def compiled_meanwhile(x):
    return torch.compile(lambda x: x + 1, backend=refuse, mode="max-autotune", fullgraph=True)(x)


def compiled_by_decorator(x):
    @torch.compile(dynamic=True, options={"trace.enabled": True})
    def add_one(x):
        return x + 1

    return add_one(x)


def compiled_in_place(x):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    model.compile(backend=refuse)
    return model(x) + 1


@pytest.mark.parametrize(
    "code", [compiled_before, compiled_meanwhile, compiled_by_decorator, compiled_in_place]
)
def test_it_runs_as_it_is_written(code):
    with not_compiling():
        assert code(torch.ones(1)).tolist() == [2.0]


def test_what_wraps_a_model_is_what_pytorch_wraps_it_in():
    model = torch.nn.Linear(1, 1)
    with not_compiling():
        compiled = torch.compile(model)
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]


def test_afterwards_it_is_compiled_again():
    compile_as_ever = torch.compile
    with pytest.raises(ZeroDivisionError), not_compiling():
        _ = 1 / 0
    assert torch.compile is compile_as_ever
    with pytest.raises(Exception, match="something was compiled"):
        compiled_before(torch.ones(1))
