"""The largest batch: against brute force, and on a pretended device that runs out of memory."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from amp_lessons.measure import batch, predict_largest_batch, predict_memory, search_largest_batch
from amp_lessons.measure.batch import LARGEST_BATCH, is_out_of_memory


def _model():
    return nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))


def rows(count):
    return torch.randn(count, 64)


class Pairs(nn.Linear):
    """Compares all samples with all others, as contrastive losses do."""

    def forward(self, x):
        out = super().forward(x)
        return (out @ out.t()).exp().mean()


class Gapped(nn.Linear):
    """Leaves a gap behind each row but the last one, which its storage ends with."""

    def forward(self, x):
        out = super().forward(x)
        gapped = torch.empty_strided((len(out), 31), (32, 1)).copy_(out[:, :-1])
        return gapped.square().mean()


@pytest.mark.parametrize("make", [_model, partial(Pairs, 64, 32), partial(Gapped, 64, 32)])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("first", [1, 3])
def test_the_next_batch_would_no_longer_fit(make, precision, first):
    model, capacity = make(), 600_000
    made = []

    def inputs(batch):
        made.append(batch)
        return rows(batch)

    found = predict_largest_batch(model, inputs, capacity, precision_name=precision, first=first)

    def peak(batch):
        return predict_memory(model, rows(batch), precision_name=precision).peak_bytes

    assert peak(found.batch) == found.peak_bytes[found.batch] <= capacity < peak(found.batch + 1)
    assert found.batch > 100
    if not isinstance(model, Pairs):  # whose memory is no line
        assert len(found.tried) <= 8
        assert len(made) <= 3 + (first == 1)  # what lies between is read off


def test_inputs_may_be_a_tensor_a_tuple_or_a_dict_and_half_precision_allows_more_of_them():
    found = predict_largest_batch(_model(), rows, 400_000)
    assert found.batch > 0
    for make_inputs in (lambda b: (rows(b),), lambda b: {"input": rows(b)}):
        assert predict_largest_batch(_model(), make_inputs, 400_000).batch == found.batch
    assert predict_largest_batch(_model(), rows, 400_000, precision_name="bf16").batch > found.batch


def test_a_warning_of_the_predictions_is_passed_on():
    found = predict_largest_batch(nn.LSTM(8, 8), lambda b: torch.randn(4, b, 8), 100_000)
    assert "recurrent layer" in found.warning
    assert not predict_largest_batch(_model(), rows, 400_000).warning


def test_the_largest_that_is_asked_about_takes_no_memory_and_where_none_fits_it_is_0():
    assert predict_largest_batch(nn.Linear(64, 1), rows, 10**15).batch == LARGEST_BATCH
    found = predict_largest_batch(_model(), rows, 1000)
    assert (found.batch, found.tried) == (0, {1: False})


@pytest.mark.parametrize(
    ("peaks", "expected"),
    [
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
def test_the_line_through_the_last_two_peaks_is_followed_to_the_capacity(peaks, expected):
    assert batch._extrapolated(peaks, 1000) == expected


def test_memory_that_grows_evenly_is_asked_about_four_times():
    peaks = {}

    def fits(size):
        peaks[size] = 10**6 + 12_345 * size
        return peaks[size] <= 10**9

    largest, tried = batch._largest(fits, lambda: batch._extrapolated(peaks, 10**9))
    assert largest == (10**9 - 10**6) // 12_345
    assert len(tried) == 4, "one sample, two, the answer, and one more, which is too large"


OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize(
    ("limit", "error"),
    [
        *((limit, OUT_OF_MEMORY) for limit in (0, 1, 2, 3, 17, 64, 100, 1000)),
        (17, RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling")),
    ],
)
def test_search_finds_the_last_batch_that_survives(limit, error, monkeypatch):
    released = []
    # Collecting garbage takes a second in a process that has loaded everything the other tests need.
    monkeypatch.setattr(batch, "release_memory", lambda: released.append(True))

    def step(batch):
        if batch > limit:
            raise error

    found = search_largest_batch(step, largest=1000)
    assert found.batch == limit
    assert found.tried.get(limit, True)
    assert limit == 1000 or not found.tried[limit + 1]
    assert len(found.tried) <= 22
    assert len(released) == list(found.tried.values()).count(False)


def test_search_lets_other_errors_through():
    def step(batch):
        raise RuntimeError("shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes"):
        search_largest_batch(step)


def test_a_cpu_that_refuses_memory_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_search_on_a_gpu_agrees_with_the_prediction_within_a_tenth():
    share = 2 * 2**30
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(share / torch.cuda.mem_get_info()[1])

    def step(batch):
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
