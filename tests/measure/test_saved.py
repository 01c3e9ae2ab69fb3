"""Saved-activation bytes against what autograd's own hooks see on real tensors of the CPU."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from amp_lessons import autocast
from amp_lessons.measure import predict_memory, saved_activation_bytes
from amp_lessons.precisions import precision_name
from tests.measure.architectures import OF_TORCH, OF_TRANSFORMERS, Architecture, attention, build, lstm

pytestmark = pytest.mark.slow

F16, F32 = torch.float16, torch.float32


def _seen_by_hooks(case, rules, dtype):
    """Sum the storages that autograd packs, holding on to all of them so that no address is used twice."""
    packed = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t)
    with hooks, autocast.region(rules, dtype):
        output = case.model(*case.args, **case.kwargs)
    assert output is not None
    seen = {t.untyped_storage().data_ptr() for t in (*case.model.parameters(), *case.model.buffers())}
    totals = Counter()
    for tensor in packed:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            totals[tensor.dtype] += storage.nbytes()
    return dict(totals)


@pytest.mark.few(12)
@pytest.mark.parametrize(("rules", "dtype"), [("cpu", None), ("cpu", torch.bfloat16), ("cuda", F16)])
@pytest.mark.parametrize("make", [*OF_TORCH, *OF_TRANSFORMERS])
def test_equal_byte_for_byte_on_real_and_on_fake_tensors_and_as_predicted(make, rules, dtype):
    case = build(make)
    expected = _seen_by_hooks(case, rules, dtype)
    for model in (case.model, autocast.fake_copy(case.model)):
        found = saved_activation_bytes(model, *case.args, **case.kwargs, dtype=dtype, device_type=rules)
        assert found == expected
    if rules == "cpu":  # a GPU's kernels keep something else
        options = {"precision_name": precision_name(dtype), "device_type": "cpu", **case.kwargs}
        assert predict_memory(case.model, *case.args, **options).saved_bytes == expected


class Force(nn.Module):
    """Return the derivative of an energy, to be trained through: a backward pass within the forward one."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        x = x.clone().requires_grad_()
        (force,) = torch.autograd.grad(self.last(self.first(x).tanh()).sum(), x, create_graph=True)
        return force


def force():
    return Architecture(Force(), (torch.randn(5, 4),))


@pytest.mark.parametrize(
    ("make", "rules", "dtype"),
    [
        *((lstm, *each) for each in (("cpu", None), ("cuda", None), ("cuda", F16))),
        *((force, "cpu", dtype) for dtype in (None, torch.bfloat16)),
    ],
)
def test_recurrent_layers_and_derivatives_in_a_forward_pass_are_equal_on_real_tensors(make, rules, dtype):
    case = build(make)
    expected = _seen_by_hooks(case, rules, dtype)
    assert saved_activation_bytes(case.model, *case.args, dtype=dtype, device_type=rules) == expected
    assert autocast.record(case.model, *case.args, dtype=dtype, device_type=rules).saved_bytes == expected


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_one_linear_layer_by_hand_whatever_the_callers_mode(mode):
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    wants_gradient = torch.randn(8, 16, requires_grad=True)
    weight_copy = 16 * 4 * 2
    with mode():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        assert saved_activation_bytes(model, x.clone()) == {F32: 8 * 16 * 4}
        assert saved_activation_bytes(model, x, dtype=F16) == {F16: 8 * 16 * 2}
        assert saved_activation_bytes(model, wants_gradient, dtype=F16) == {F16: 8 * 16 * 2 + weight_copy}
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before


def test_a_model_is_left_as_it_was():
    case = build(attention)
    before = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    assert sum(saved_activation_bytes(case.model, *case.args).values()) > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.model.state_dict().items())
