"""Saved-activation bytes against what autograd's own hooks see on real tensors of the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from amp_lessons import autocast
from amp_lessons.measure import predict_memory, saved_activation_bytes
from tests.measure.architectures import (
    OF_TORCH,
    OF_TRANSFORMERS,
    Architecture,
    attention,
    build,
    lstm,
    mlp,
    tied_language_model,
)

pytestmark = pytest.mark.slow

RULES_AND_DTYPES = [
    ("cpu", None),
    ("cpu", torch.bfloat16),
    ("cuda", torch.float16),
]


def _seen_by_hooks(case: Architecture, rules: str, dtype: torch.dtype | None) -> dict[torch.dtype, int]:
    """Sum the storages that autograd packs, holding on to all of them so that no address is used twice."""
    packed: list[Tensor] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t)
    with hooks, autocast.region(rules, dtype):
        output = case.model(*case.args, **case.kwargs)
    assert output is not None
    seen = {t.untyped_storage().data_ptr() for t in (*case.model.parameters(), *case.model.buffers())}
    totals: Counter[torch.dtype] = Counter()
    for tensor in packed:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            totals[tensor.dtype] += storage.nbytes()
    return dict(totals)


@pytest.mark.few(12)
@pytest.mark.parametrize(("rules", "dtype"), RULES_AND_DTYPES)
@pytest.mark.parametrize("make", [*OF_TORCH, *OF_TRANSFORMERS])
def test_equal_byte_for_byte_on_real_and_on_fake_tensors(
    make: Callable[[], Architecture], rules: str, dtype: torch.dtype | None
) -> None:
    case = build(make)
    expected = _seen_by_hooks(case, rules, dtype)
    for model in (case.model, autocast.fake_copy(case.model)):
        found = saved_activation_bytes(model, *case.args, **case.kwargs, dtype=dtype, device_type=rules)
        assert found == expected


@pytest.mark.parametrize(("rules", "dtype"), [("cpu", None), ("cuda", None), ("cuda", torch.float16)])
def test_recurrent_layers_are_equal_on_real_tensors(rules: str, dtype: torch.dtype | None) -> None:
    case = build(lstm)
    found = saved_activation_bytes(case.model, *case.args, dtype=dtype, device_type=rules)
    assert found == _seen_by_hooks(case, rules, dtype)


@pytest.mark.parametrize("make", OF_TORCH)
def test_the_memory_prediction_saves_the_same(make: Callable[[], Architecture]) -> None:
    case = build(make)
    for name, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
        options = {"precision_name": name, "device_type": "cpu", **case.kwargs}
        predicted = predict_memory(case.model, *case.args, **options)
        assert predicted.saved_bytes == _seen_by_hooks(case, "cpu", dtype)


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_the_ledger_counts_the_same(dtype: torch.dtype | None) -> None:
    case = build(tied_language_model)
    counted = saved_activation_bytes(case.model, *case.args, dtype=dtype)
    assert autocast.record(case.model, *case.args, dtype=dtype).saved_bytes == counted


def test_the_cpus_rules_keep_norms_in_half() -> None:
    case = build(mlp)
    cuda, cpu = (
        saved_activation_bytes(case.model, *case.args, dtype=torch.bfloat16, device_type=rules)
        for rules in ("cuda", "cpu")
    )
    assert cpu[torch.float32] < cuda[torch.float32]


def test_one_linear_layer_by_hand() -> None:
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    assert saved_activation_bytes(model, x) == {torch.float32: 8 * 16 * 4}
    assert saved_activation_bytes(model, x, dtype=torch.float16) == {torch.float16: 8 * 16 * 2}
    wants_gradient = torch.randn(8, 16, requires_grad=True)
    weight_copy = 16 * 4 * 2
    assert saved_activation_bytes(model, wants_gradient, dtype=torch.float16) == {
        torch.float16: 8 * 16 * 2 + weight_copy
    }


def test_a_model_is_left_as_it_was() -> None:
    case = build(attention)
    before = {name: tensor.clone() for name, tensor in case.model.state_dict().items()}
    assert sum(saved_activation_bytes(case.model, *case.args).values()) > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in case.model.state_dict().items())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_makes_no_difference(mode: type[torch.no_grad]) -> None:
    model, x = nn.Linear(16, 4), torch.randn(8, 16)
    with mode():
        assert saved_activation_bytes(model, x, dtype=torch.float16) == {torch.float16: 8 * 16 * 2}
        assert saved_activation_bytes(model, x.clone()) == {torch.float32: 8 * 16 * 4}
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module"):
        saved_activation_bytes(torch.relu, torch.randn(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"torch\.float16 or torch\.bfloat16"):
        saved_activation_bytes(nn.ReLU(), torch.randn(2), dtype=torch.float32)


class Force(nn.Module):
    """Return the derivative of an energy, to be trained through: a backward pass within the forward one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        (force,) = torch.autograd.grad(self.last(self.first(x).tanh()).sum(), x, create_graph=True)
        return force


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_model_may_take_derivatives_in_its_forward_pass(dtype: torch.dtype | None) -> None:
    case = Architecture(Force(), (torch.randn(5, 4),), {})
    found = saved_activation_bytes(case.model, *case.args, dtype=dtype, device_type="cpu")
    assert found == _seen_by_hooks(case, "cpu", dtype)
    assert autocast.record(case.model, *case.args, dtype=dtype, device_type="cpu").saved_bytes == found
