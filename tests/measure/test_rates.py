"""Rates and roofline: the counts against PyTorch's own counter, the arithmetic against hand-made points."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons.measure import rates
from amp_lessons.measure.operations import OPERATIONS, operation_rates, operation_rates_in_turns
from amp_lessons.measure.rates import Rate, Roofline, copy_rates, precisions_on, product_rate, product_rates
from amp_lessons.measure.stopwatch import ROUNDS, Timing

QUICK = {"device": "cpu", "seconds": 0.01}


def _rate(operation, precision, flop, moved_bytes, ms):
    return Rate(operation, precision, moved_bytes, flop, moved_bytes, Timing((ms,) * 3, "cpu"))


ROOF = Roofline(
    "cpu",
    products=(
        _rate("matrix product", "fp32", 1e9, 10**6, 10.0),  # 100 GFLOP/s
        _rate("matrix product", "fp32", 1e9, 10**6, 5.0),  # 200 GFLOP/s
        _rate("matrix product", "bf16", 1e9, 10**6, 1.0),  # 1000 GFLOP/s
    ),
    copies=(
        _rate("copy", "fp32", 0, 10**6, 0.01),  # 100 GB/s, in the cache
        _rate("copy", "fp32", 0, 10**8, 5.0),  # 20 GB/s
        _rate("copy", "bf16", 0, 10**8, 5.0),
    ),
)


def test_roof_is_the_best_product_and_the_largest_copy():
    assert ROOF.precisions == ("fp32", "bf16")
    assert ROOF.flop_per_s("fp32") == pytest.approx(200e9)
    assert ROOF.bytes_per_s("fp32") == pytest.approx(20e9)
    assert ROOF.ridge_point("fp32") == pytest.approx(10.0)
    assert ROOF.ridge_point("bf16") == pytest.approx(50.0)
    for intensity, gflop_per_s in ((0.1, 2.0), (5.0, 100.0), (10.0, 200.0), (1e3, 200.0)):
        assert ROOF.attainable_flop_per_s("fp32", intensity) == pytest.approx(gflop_per_s * 1e9)
    with pytest.raises(ValueError, match="no rate was measured in 'fp16', only in fp32, bf16"):
        ROOF.ridge_point("fp16")


def test_a_product_counts_what_pytorch_counts_and_a_copy_what_it_reads_and_writes():
    m, n, k = shape = 24, 40, 56
    with FlopCounterMode(display=False) as counter:
        torch.randn(m, k) @ torch.randn(k, n)
    rate = product_rate(shape, "bf16", **QUICK)
    assert rate.flop == counter.get_total_flops()
    assert rate.moved_bytes == 2 * (m * k + k * n + m * n)
    assert rate.intensity == pytest.approx(rate.flop / rate.moved_bytes)
    assert rate.flop_per_s == pytest.approx(rate.flop / rate.timing.median_ms * 1e3)
    (copied,) = copy_rates("bf16", sizes=[4096], **QUICK)
    assert (copied.moved_bytes, copied.flop) == (2 * 4096, 0)


def test_products_grow_until_the_next_would_take_too_long(monkeypatch):
    def pretend(size, precision_name, *, device, seconds):
        return Rate("matrix product", precision_name, size, 2.0 * size**3, 1, Timing((size**3 / 1e6,), "cpu"))

    monkeypatch.setattr(rates, "product_rate", pretend)
    # 0.1 s are 1e8 / 1e6 ms: 464 cubed is just below.
    measured = [rate.size for rate in product_rates("fp32", device="cpu", sizes=[100, 200, 400, 464, 465])]
    assert measured == [100, 200, 400, 464]


def test_products_and_copies_leave_most_of_the_memory_alone(monkeypatch):
    monkeypatch.setattr(rates, "free_bytes", lambda _: 4 * 3 * 4 * 64**2)
    # Memory alone is to end the search: on a busy machine even 32 rows take longer than allowed now and then.
    products = product_rates("fp32", sizes=[32, 64, 65], longest_call_ms=math.inf, **QUICK)
    assert [rate.size for rate in products] == [32, 64]
    assert [rate.size for rate in copy_rates("fp32", sizes=[1024, 2**20], **QUICK)] == [1024]
    assert [rate.size for rate in copy_rates("fp32", sizes=[2**20, 2**21], **QUICK)] == [2**20]


@pytest.mark.parametrize("name", ["matrix product", "attention"])
def test_operations_count_what_pytorch_counts(name):
    operation, (tokens, width) = OPERATIONS[name], (1024, 128)
    inputs = [torch.empty(shape, device="meta") for shape in operation.shapes(tokens, width)]
    with FlopCounterMode(display=False) as counter:
        operation.run(*inputs)
    assert operation.flop(tokens, width) == counter.get_total_flops()


def test_operations_run_as_autocast_runs_them():
    fp32, half = (
        {rate.operation: rate for rate in operation_rates(name, tokens=64, width=64, **QUICK)}
        for name in ("fp32", "bf16")
    )
    assert set(half) == {"matrix product", "attention", "LayerNorm", "addition"}
    assert half["addition"].moved_bytes == 3 * 64 * 64 * 2
    assert fp32["addition"].moved_bytes == 2 * half["addition"].moved_bytes
    assert half["matrix product"].intensity > half["LayerNorm"].intensity > half["addition"].intensity


def test_operations_in_several_precisions_take_turns(monkeypatch):
    seen = []

    def watched(x, y):
        seen.append(x.dtype)
        return x + y

    monkeypatch.setitem(OPERATIONS, "addition", replace(OPERATIONS["addition"], run=watched))
    options = {"tokens": 64, "width": 64, "operations": ["addition"], **QUICK}
    rates = operation_rates_in_turns(("fp32", "bf16"), **options)
    assert [rate.precision for rate in rates] == ["fp32", "bf16"]
    turns = sum(before != after for before, after in pairwise(seen))
    assert turns >= ROUNDS, "once and again in each round, whichever comes first"


def test_the_notebooks_random_numbers_go_on_as_if_nothing_was_measured():
    before = torch.get_rng_state()
    product_rate(8, "fp16", **QUICK)
    copy_rates("bf16", sizes=[4096], **QUICK)
    operation_rates("bf16", tokens=64, width=64, **QUICK)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, "fp32", "cpu"), "each size of a product is a whole number"),
        ((8, "fp64", "cpu"), "unknown precision 'fp64'"),
        ((8, "fp32", "tpu0"), "unknown device 'tpu0'"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        product_rate(*arguments[:2], device=arguments[2])
    assert precisions_on("cpu") == ("fp32", "fp16", "bf16")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_products_reach_what_a_plain_sweep_finds(precision, dtype):
    """The first products of a GPU that has rested are faster: at its limit of power its clock sinks."""
    best = 0.0
    for size in (1024, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 16384):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(int(1e14 / size**3) + 3):  # a third of a second of an H200
            a @ b
        start.record()
        for _ in range(10):
            a @ b
        end.record()
        end.synchronize()
        best = max(best, 10 * 2 * size**3 / (start.elapsed_time(end) / 1e3))
    found = max(rate.flop_per_s for rate in product_rates(precision, device="cuda"))
    assert found >= 0.95 * best
