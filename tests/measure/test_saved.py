"""Saved-activation bytes against what autograd's own hooks see on real tensors of the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from amp_lessons.autocast import cuda_rules, fake_copy
from amp_lessons.measure import predict_memory, saved_activation_bytes
from tests.measure.architectures import OF_TORCH, OF_TRANSFORMERS, Case, build

RULES_AND_DTYPES = [
    ("cpu", None),
    ("cpu", torch.bfloat16),
    ("cpu", torch.float16),
    ("cuda", torch.bfloat16),
    ("cuda", torch.float16),
]


def _seen_by_hooks(case: Case, rules: str, dtype: torch.dtype | None) -> dict[torch.dtype, int]:
    """Run the real model and hold on to every tensor that autograd saves, then count storages."""
    saved: list[torch.Tensor] = []
    own = {t.data_ptr() for t in (*case.model.parameters(), *case.model.buffers())}
    rules_block = cuda_rules("cpu") if rules == "cuda" else nullcontext()
    with (
        rules_block,
        torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None),
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t),
    ):
        case.model(*case.args, **case.kwargs)
    counts: Counter[torch.dtype] = Counter()
    for pointer, tensor in {t.untyped_storage().data_ptr(): t for t in reversed(saved)}.items():
        if pointer not in own:
            counts[tensor.dtype] += tensor.untyped_storage().nbytes()
    return dict(counts)


@pytest.mark.parametrize(("rules", "dtype"), RULES_AND_DTYPES)
@pytest.mark.parametrize("make", [*OF_TORCH, *OF_TRANSFORMERS])
def test_equal_byte_for_byte_on_real_and_on_fake_tensors(
    make: Callable[[], Case], rules: str, dtype: torch.dtype | None
) -> None:
    case = build(make)
    expected = _seen_by_hooks(case, rules, dtype)
    for model in (case.model, fake_copy(case.model)):
        found = saved_activation_bytes(model, *case.args, **case.kwargs, dtype=dtype, device_type=rules)
        assert found == expected


@pytest.mark.parametrize("make", OF_TORCH)
def test_the_memory_prediction_saves_the_same(make: Callable[[], Case]) -> None:
    case = build(make)
    for name, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
        predicted = predict_memory(
            case.model, *case.args, **case.kwargs, precision_name=name, device_type="cpu"
        )
        assert predicted.saved_bytes == _seen_by_hooks(case, "cpu", dtype)


def test_a_linear_layer_saves_its_input_once() -> None:
    x = torch.randn(8, 16, requires_grad=True)
    assert saved_activation_bytes(torch.nn.Linear(16, 4), x) == {torch.float32: 8 * 16 * 4}
    # Under autocast: the 16-bit copies of the input and of the weight.
    assert saved_activation_bytes(torch.nn.Linear(16, 4), x, dtype=torch.float16) == {
        torch.float16: (8 * 16 + 16 * 4) * 2
    }
