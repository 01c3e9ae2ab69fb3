"""The census against brute force: PyTorch's own multiplication and cast, and ml_dtypes for what overflows."""

import multiprocessing
import os
import re
import sys
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import FATES, Census, census, counts, histogram, parse_scale

TARGETS = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: ml_dtypes.bfloat16,
    torch.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    torch.float8_e5m2: ml_dtypes.float8_e5m2,
    torch.float8_e4m3fnuz: ml_dtypes.float8_e4m3fnuz,
    torch.float8_e5m2fnuz: ml_dtypes.float8_e5m2fnuz,
}
SCALES = [1.0, 2.0**16, 2.0**-20, 2.0**40, 0.1, 3.7e5, 2.0**127, 1e-40]


def brute_force(gradients, dtype, scale):
    wide = gradients if gradients.dtype == torch.float64 else gradients.float()
    scaled = wide * scale
    after = scaled.to(dtype).double()
    with np.errstate(all="ignore"):  # ml_dtypes never saturates, whatever this version of PyTorch does
        in_range = np.isfinite(scaled.reshape(-1).numpy().astype(TARGETS[dtype]).astype(np.float64))
    overflowed = ~torch.from_numpy(in_range).view(after.shape)
    fate = torch.full(after.shape, FATES.index("normal"))
    fate[after.abs() < torch.finfo(dtype).smallest_normal] = FATES.index("subnormal")
    fate[after == 0] = FATES.index("underflowed")
    fate[overflowed] = FATES.index("overflowed")
    finite = torch.isfinite(wide)
    at_stake = finite & (wide != 0)
    binade = np.frexp(wide[at_stake].double().numpy())[1] - 1
    fates = {name: Counter() for name in FATES}
    for k, b in zip(fate[at_stake].tolist(), binade.tolist(), strict=True):
        fates[FATES[k]][b] += 1
    return Census(dtype_name(dtype), scale, int((wide == 0).sum()), int((~finite).sum()), fates)


def random_bits(count, bits_dtype, dtype):
    """Any bit pattern is as likely as any other: zeros, subnormals, infinities and NaNs included."""
    info = torch.iinfo(bits_dtype)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(info.min, info.max, (count,), generator=generator, dtype=bits_dtype).view(dtype)


def around_the_edges_of(dtype):
    """Every edge of the format, halves of it (the ties), and the neighbours on both sides, of both signs."""
    limits = torch.finfo(dtype)
    step = limits.smallest_normal * limits.eps
    top = 2.0 ** np.floor(np.log2(limits.max)) * limits.eps  # spacing of the largest numbers
    edges = [0.0, step / 2, step, 1.5 * step, limits.smallest_normal - step / 2, limits.smallest_normal]
    edges += [limits.max, limits.max + top / 2, limits.max + top, 1.0]
    exact = torch.tensor(edges, dtype=torch.float64).to(torch.float32)
    inf = torch.tensor(torch.inf)
    near = torch.cat([exact, exact.nextafter(inf), exact.nextafter(-inf)])
    return torch.cat([near, -near])


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_equals_a_brute_force_cast_for_every_kind_of_fp32(dtype):
    gradients = torch.cat([random_bits(20_000, torch.int32, torch.float32), around_the_edges_of(dtype)])
    gradients = torch.cat([gradients, torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])])
    for scale in SCALES:
        assert census(gradients, dtype, scale) == brute_force(gradients, dtype, scale), scale


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
@pytest.mark.parametrize("scale", [0.1, 3.0, 1e5 / 3])
def test_the_edges_are_where_the_fp32_product_puts_them(dtype, scale):
    edges = (around_the_edges_of(dtype) / scale).view(torch.int32)
    neighbours = torch.cat([edges + step for step in range(-4, 5)]).view(torch.float32)
    assert census(neighbours, dtype, scale) == brute_force(neighbours, dtype, scale)


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
@pytest.mark.parametrize(
    "gradients",
    [
        torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16),
        torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16),
        torch.arange(-(2**7), 2**7).to(torch.int8).view(torch.float8_e4m3fn),
        torch.arange(-(2**7), 2**7).to(torch.int8).view(torch.float8_e5m2),
        random_bits(20_000, torch.int64, torch.float64),
    ],
    ids=lambda gradients: str(gradients.dtype),
)
def test_equals_a_brute_force_cast_for_every_input_dtype(gradients, dtype):
    for scale in (1.0, 2.0**10, 0.3):
        assert census(gradients, dtype, scale) == brute_force(gradients, dtype, scale), scale


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(width=32), max_size=20),
    scale=st.floats(min_value=2.0**-100, max_value=2.0**127, width=32),
    dtype=st.sampled_from(list(TARGETS)),
)
def test_equals_brute_force_for_any_values_at_any_scale(values, scale, dtype):
    gradients = torch.tensor(values, dtype=torch.float32)
    assert census(gradients, dtype, scale) == brute_force(gradients, dtype, scale)


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
@pytest.mark.parametrize("scale", [1.0, 2.0**10, 0.3])
def test_the_norm_and_what_of_it_vanishes_are_those_of_a_brute_force_cast(dtype, scale, monkeypatch):
    monkeypatch.setattr(histogram, "CPU_CHUNK", 777)
    spread = torch.randn(5000, generator=torch.Generator().manual_seed(0)).exp2().pow(9) * 1e-6
    for finite in (spread, spread.double(), spread.view(50, 100)[:, ::3]):
        gradients = torch.cat([finite.flatten(), torch.tensor([0.0, torch.inf, torch.nan]).to(finite)])
        found = census([gradients[:1000], gradients[1000:]], dtype, scale, norms=True)
        lost = finite[(finite * scale).to(dtype).double() == 0]
        assert found.norm == pytest.approx(np.linalg.norm(finite.double().numpy()), rel=1e-12)
        assert found.underflowed_norm == pytest.approx(np.linalg.norm(lost.double().numpy()), rel=1e-12)


def test_half_of_the_gradients_may_be_a_thousandth_of_the_norm():
    found = census(torch.tensor([2.0**-26, -(2.0**-26), 2.0**-17, 2.0**-17]), norms=True)
    assert found.underflow_fraction == 1 / 2
    assert found.underflow_norm_fraction == pytest.approx(2.0**-9, rel=1e-5)
    more = found + census(torch.zeros(3), norms=True)
    assert more.underflow_norm_fraction == found.underflow_norm_fraction


def test_a_census_without_norms_says_how_to_get_them():
    without = census(torch.ones(1))
    for found in (without, without + census(torch.ones(1), norms=True)):
        with pytest.raises(ValueError, match="norms=True"):
            _ = found.underflow_norm_fraction


def test_what_a_reader_can_check_by_hand():
    gradients = torch.tensor([0.0, 2.0**-26, 2.0**-25, 2.0**-24, 1e-5, 1.0, -3.0, 65520.0, torch.nan])
    found = census(gradients)
    assert (found.zero, found.underflowed, found.subnormal, found.normal) == (1, 2, 2, 2)
    assert (found.overflowed, found.nonfinite, found.total) == (1, 1, 9)
    assert found.binades == {-26: 1, -25: 1, -24: 1, -17: 1, 0: 1, 1: 1, 15: 1}
    assert found.underflow_fraction == 2 / 7
    assert found.fates["overflowed"] == {15: 1}
    assert census(gradients, scale=2.0).underflowed == 1


def test_shapes_strides_and_how_many_tensors_do_not_matter():
    tensor = torch.randn(60, 50, 4, generator=torch.Generator().manual_seed(0)) * 1e-6
    for view in (tensor.transpose(0, 2), tensor[::3, 1::2], tensor[:1].expand(7, -1, -1), tensor[0, 0, 0]):
        rows = view.contiguous().view(-1, 1)
        assert census(view) == census(list(rows)) == census(row for row in rows), view.shape


def test_more_than_one_chunk_counts_like_its_parts(monkeypatch):
    tensor = random_bits(10_000, torch.int32, torch.float32)
    whole = census(tensor)
    strided = census(tensor.view(100, 100)[:, ::3])
    monkeypatch.setattr(histogram, "CPU_CHUNK", 777)
    assert census(tensor) == whole
    assert census(tensor.view(100, 100)[:, ::3]) == strided


def test_fp64_and_fp32_gradients_may_be_mixed():
    first, second = torch.tensor([1e-300, 1e-8], dtype=torch.float64), torch.tensor([1e-8])
    found = census([first, second])
    assert (found.underflowed, found.total) == (3, 3)
    assert found.binades == {-997: 1, -27: 2}


@pytest.mark.parametrize("nothing", [[], torch.empty(0), torch.empty(3, 0), (torch.empty(0),)])
def test_nothing_to_count(nothing):
    found = census(nothing, norms=True)
    assert (found.total, found.binades, found.underflow_fraction) == (0, {}, 0.0)
    assert found.underflow_norm_fraction == 0.0


def test_parameters_that_require_gradients_are_counted_and_left_alone():
    weight = torch.nn.Parameter(torch.tensor([1e-9, 1.0]))
    assert census([weight]).underflowed == 1
    assert weight.requires_grad
    assert weight.tolist() == torch.tensor([1e-9, 1.0]).tolist()


def test_censuses_of_layers_add_up():
    first, second = torch.tensor([1e-9, 0.0, 1.0]), torch.tensor([torch.inf, 1e-9, 1e6])
    assert census(first) + census(second) == census([first, second])


def test_censuses_of_different_formats_or_scales_do_not_add_up():
    one = census(torch.ones(1))
    with pytest.raises(ValueError, match="one dtype and scale"):
        one + census(torch.ones(1), torch.bfloat16)
    with pytest.raises(ValueError, match="one dtype and scale"):
        one + census(torch.ones(1), scale=2.0)
    with pytest.raises(TypeError):
        one + 1


@pytest.mark.parametrize("scale", [0, -1.0, float("nan"), 2.0**200, 10**400, 1e-60])
def test_an_impossible_scale_is_refused(scale):
    with pytest.raises(ValueError, match="positive and finite in fp32"):
        census(torch.ones(1), scale=scale)


@pytest.mark.parametrize("scale", ["2", True, None, 1j, torch.tensor(2.0)])
def test_a_scale_that_is_no_number_is_refused(scale):
    with pytest.raises(TypeError, match="a loss scale is a number"):
        census(torch.ones(1), scale=scale)


@pytest.mark.parametrize("scale", [2, np.float32(2), np.int64(2)])
def test_any_real_number_is_a_scale(scale):
    assert census(torch.tensor([2.0**-25]), scale=scale).subnormal == 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, "fp16", None])
def test_a_target_that_is_no_floating_dtype_is_refused(dtype):
    with pytest.raises(TypeError, match=r"floating torch\.dtype"):
        census(torch.ones(1), dtype)


@pytest.mark.parametrize("name", ["float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_a_format_that_cannot_hold_gradients_is_refused(name):
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this PyTorch has no {name}")
    with pytest.raises(ValueError, match="cannot"):
        census(torch.ones(1), dtype)


@pytest.mark.parametrize(
    "gradients",
    [torch.arange(3), [torch.ones(1), torch.ones(1, dtype=torch.bool)], torch.ones(3).to_sparse()],
)
def test_gradients_that_are_not_dense_floats_are_refused(gradients):
    with pytest.raises(TypeError, match="dense floating tensors"):
        census(gradients)


def test_a_parameter_without_gradient_is_explained():
    with pytest.raises(TypeError, match=r"item 1 is a NoneType.*p\.grad is not None"):
        census([torch.ones(1), None])
    with pytest.raises(TypeError, match="gradients are a tensor, or several in a list, not NoneType"):
        census(None)


@pytest.mark.few
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(2**25),
        lambda: torch.randn(2**25).to(torch.bfloat16),
        lambda: torch.randn(2**13, 2**12 + 1)[:, 1:],  # no single stride leads through it
        lambda: torch.randn(2**13, 2**12).t(),
    ],
    ids=["fp32", "bf16", "strided", "transposed"],
)
def test_extra_memory_is_far_below_the_size_of_the_gradients(make):
    gradients = make()
    census(gradients)  # the first one also looks for the thresholds
    assert max(_extra_mib_of_a_census(gradients) for _ in range(5)) < 24  # of 64 or 128


def _extra_mib_of_a_census(gradients):
    """Read it off the peak that Linux notes, which it does now and then: one reading may miss it."""
    Path("/proc/self/clear_refs").write_text("5")  # peak := now
    before = _memory_mib("VmHWM")
    census(gradients)
    return _memory_mib("VmHWM") - before


def _memory_mib(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _total_in_a_worker(count):
    torch.set_num_threads(1)  # as PyTorch's DataLoader does in its workers
    return census(torch.ones(count)).total


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_worker_can_count_too():
    size = 2**22
    assert census(torch.ones(size)).total == size  # so that PyTorch has threads, which no child inherits
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_total_in_a_worker, (size,)).get(timeout=30) == size


@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_the_way_of_other_devices_counts_like_the_cpus(dtype, monkeypatch):
    given = [
        random_bits(10_000, torch.int32, torch.float32),
        random_bits(10_000, torch.int64, torch.float64),
        random_bits(10_001, torch.int16, torch.bfloat16).reshape(73, 137).T,
        torch.zeros(5),
    ]
    wanted = [(dtype, 2.0**10), (torch.float16, 1.0), (torch.bfloat16, 2.0**-30)]
    expected = [counts.censuses(gradients, wanted, norms=True)() for gradients in (*given, given, [])]
    monkeypatch.setattr(counts, "is_on_cpu", lambda tensor: False)
    monkeypatch.setattr(histogram, "DEVICE_CHUNK", 3000)
    found = [counts.censuses(gradients, wanted, norms=True)() for gradients in (*given, given, [])]
    assert found == expected
    with np.errstate(over="ignore"):
        for ours, theirs in zip(sum(found, ()), sum(expected, ()), strict=True):
            norms = [(each.norm, each.underflowed_norm) for each in (ours, theirs)]
            np.testing.assert_allclose(*norms, rtol=1e-12)


def test_the_way_of_other_devices_asks_for_no_algorithm_of_its_own(monkeypatch):
    monkeypatch.setattr(counts, "is_on_cpu", lambda tensor: False)
    allowed, cumsum = [], Tensor.cumsum

    def spied(*args, **kwargs):
        allowed.append(not torch.are_deterministic_algorithms_enabled())
        return cumsum(*args, **kwargs)

    monkeypatch.setattr(Tensor, "cumsum", spied)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        census(torch.ones(3))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert allowed == [True]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", TARGETS, ids=str)
def test_a_gpu_counts_like_the_cpu(dtype, monkeypatch):
    monkeypatch.setattr(histogram, "DEVICE_CHUNK", 3000)
    for gradients in (
        random_bits(10_000, torch.int32, torch.float32),
        random_bits(10_000, torch.int64, torch.float64),
        random_bits(10_000, torch.int16, torch.bfloat16),
    ):
        assert census(gradients.cuda(), dtype, 2.0**10) == census(gradients, dtype, 2.0**10)


# --- a loss scale that somebody types


@pytest.mark.parametrize(
    ("text", "scale"), [("65536", 65536.0), ("2^16", 65536.0), (" 1e3 ", 1000.0), ("2**-3", 0.125)]
)
def test_numbers_and_powers_are_understood(text, scale):
    assert parse_scale(text) == scale


@pytest.mark.parametrize("text", ["0", "-3", "-0", "nan", "inf", "2^200", "1e999", "2^-999", "abc", ""])
def test_what_is_no_scale_is_answered_in_words(text):
    with pytest.raises(ValueError, match=r"\w+ \w+ \w+"):
        parse_scale(text)


def test_the_limit_that_is_named_is_below_what_is_refused():
    with pytest.raises(ValueError, match="at most") as caught:
        parse_scale("2^128")
    limit, got = (float(number) for number in re.findall(r"\d\.\d+e\+38", str(caught.value)))
    assert limit < got
