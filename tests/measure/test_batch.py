"""The largest batch: against brute force, and on a pretended device that runs out of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from amp_lessons.measure import batch, predict_largest_batch, predict_memory, search_largest_batch
from amp_lessons.measure.batch import LARGEST_BATCH, is_out_of_memory


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))


class Pairs(nn.Linear):
    """Compares all samples with all others, as contrastive losses do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        return (out @ out.t()).exp().mean()


class Gapped(nn.Linear):
    """Leaves a gap behind each row but the last one, which its storage ends with."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        gapped = torch.empty_strided((len(out), 31), (32, 1)).copy_(out[:, :-1])
        return gapped.square().mean()


@pytest.mark.parametrize("make", [_model, lambda: Pairs(64, 32), lambda: Gapped(64, 32)])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("first", [1, 3])
def test_the_next_batch_would_no_longer_fit(
    make: Callable[[], nn.Module], precision: str, first: int
) -> None:
    model, capacity = make(), 600_000
    made: list[int] = []

    def inputs(batch: int) -> torch.Tensor:
        made.append(batch)
        return torch.randn(batch, 64)

    found = predict_largest_batch(model, inputs, capacity, precision_name=precision, first=first)

    def peak(batch: int) -> int:
        return predict_memory(model, torch.randn(batch, 64), precision_name=precision).peak_bytes

    assert peak(found.batch) == found.peak_bytes[found.batch] <= capacity < peak(found.batch + 1)
    assert found.batch > 100
    if not isinstance(model, Pairs):  # whose memory is no line
        assert len(found.tried) <= 8
        assert len(made) <= 3 + (first == 1)  # what lies between is read off


def test_a_smaller_precision_allows_a_larger_batch() -> None:
    batches = {
        name: predict_largest_batch(_model(), lambda b: torch.randn(b, 64), 10**7, precision_name=name).batch
        for name in ("fp32", "bf16")
    }
    assert batches["bf16"] > batches["fp32"]


@pytest.mark.parametrize(
    "make_inputs",
    [lambda b: torch.randn(b, 64), lambda b: (torch.randn(b, 64),), lambda b: {"input": torch.randn(b, 64)}],
)
def test_inputs_may_be_a_tensor_a_tuple_or_a_dict(make_inputs: Callable[[int], object]) -> None:
    found = predict_largest_batch(_model(), make_inputs, 400_000)
    assert found.batch == predict_largest_batch(_model(), lambda b: torch.randn(b, 64), 400_000).batch > 0


def test_a_warning_of_the_predictions_is_passed_on() -> None:
    found = predict_largest_batch(nn.LSTM(8, 8), lambda b: torch.randn(4, b, 8), 100_000)
    assert "recurrent layer" in found.warning
    assert not predict_largest_batch(_model(), lambda b: torch.randn(b, 64), 400_000).warning


def test_large_batches_take_no_memory_to_ask_about() -> None:
    found = predict_largest_batch(nn.Linear(10, 1), lambda b: torch.randn(b, 10), 10**15)
    assert found.batch == LARGEST_BATCH


def test_a_model_that_does_not_fit_at_all() -> None:
    found = predict_largest_batch(_model(), lambda b: torch.randn(b, 64), 1000)
    assert found.batch == 0
    assert found.tried == {1: False}


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
        ({}, None),
        ({1: 110}, None),
        ({1: 110, 2: 120}, 90),  # 100 + 10 bytes a sample: 1000 bytes hold 90
        ({2: 120, 1: 110}, 90),  # the slope is that of the line, whichever way it was walked
        ({1: 110, 4: 131}, 128),  # 103 + 7 bytes a sample: 897 // 7
        ({1: 900, 2: 120, 4: 140}, 90),  # the last two count: small batches may choose other kernels
        ({4: 140, 200: 2100}, 90),  # back from a batch that is too large
        ({1: 110, 2: 110}, None),  # memory that does not grow says nothing of where it ends
        ({1: 120, 2: 110}, None),
    ],
)
def test_the_line_through_the_last_two_peaks_is_followed_to_the_capacity(peaks, expected) -> None:
    assert batch._extrapolated(peaks, 1000) == expected


def test_memory_that_grows_evenly_is_asked_about_four_times() -> None:
    peaks: dict[int, int] = {}

    def fits(size: int) -> bool:
        peaks[size] = 10**6 + 12_345 * size
        return peaks[size] <= 10**9

    largest, tried = batch._largest(fits, lambda: batch._extrapolated(peaks, 10**9))
    assert largest == (10**9 - 10**6) // 12_345
    assert len(tried) == 4, "one sample, two, the answer, and one more, which is too large"


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 17, 64, 100, 1000])
@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling")],
)
def test_search_finds_the_last_batch_that_survives(
    limit: int, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[bool] = []
    # Collecting garbage takes a second in a process that has loaded everything the other tests need.
    monkeypatch.setattr(batch, "release_memory", lambda: released.append(True))

    def step(batch: int) -> None:
        if batch > limit:
            raise error

    found = search_largest_batch(step, largest=1000)
    assert found.batch == limit
    assert found.tried.get(limit, True)
    assert limit == 1000 or not found.tried[limit + 1]
    assert len(found.tried) <= 22
    assert len(released) == list(found.tried.values()).count(False)


def test_search_lets_other_errors_through() -> None:
    def step(batch: int) -> None:
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        search_largest_batch(step)


def test_a_cpu_that_refuses_memory_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_search_on_a_gpu_agrees_with_the_prediction_within_a_tenth() -> None:
    share = 2 * 2**30
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share / total)

    def step(batch: int) -> None:
        for _ in range(2):
            model(torch.randn(batch, 2048, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    try:
        searched = search_largest_batch(step).batch
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    predicted = predict_largest_batch(model, lambda b: torch.randn(b, 2048), share).batch
    assert searched == pytest.approx(predicted, rel=0.1)
