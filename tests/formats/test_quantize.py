"""Rounding whole tensors, bit for bit, against PyTorch's casts, ml_dtypes and integer arithmetic."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from amp_lessons.formats import FORMATS
from tests.formats.integer_rounding import rounded_by_integers
from tests.formats.references import KNOWN_ELSEWHERE, KNOWN_NOWHERE, reference_dtype

CASTABLE = [name for name, float_format in FORMATS.items() if float_format.dtype]
# Where ml_dtypes decides otherwise beyond the range, below it or for NaN; each has a test of its own.
OTHERWISE_IN_ML_DTYPES = {"fp8_e4m3", "fp4_e2m1", "e8m0"}


def values_and_ties(float_format):
    """Return values of a format, the midpoints between them, and the float32 neighbours of both."""
    codes = np.linspace(0, float_format.max_code, min(2000, float_format.max_code + 1)).astype(int).tolist()
    values = [float_format.decode(code) for code in codes]
    midpoints = [value + float_format.spacing(value) / 2 for value in values]
    magnitudes = torch.tensor(values + midpoints, dtype=torch.float64).float()
    near = [torch.nextafter(magnitudes, torch.tensor(end)) for end in (math.inf, 0.0)]
    return torch.cat([magnitudes, *near, -magnitudes, *(-x for x in near)])


@pytest.fixture(scope="module")
def patterns():
    """Return 10^7 random float32 bit patterns and, for every format, its values and ties."""
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (10_000_000,), generator=generator).to(torch.int32)
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, 2.0**-127, 1.25 * 2.0**-127])
    return torch.cat([bits.view(torch.float32), special, *map(values_and_ties, FORMATS.values())])


def differences(actual, expected):
    """Return where two float32 tensors differ in any bit; NaN counts as equal to NaN."""
    return (actual.view(torch.int32) != expected.view(torch.int32)) & ~(actual.isnan() & expected.isnan())


def by_ml_dtypes(x, name):
    with np.errstate(all="ignore"):
        return torch.from_numpy(x.numpy().astype(reference_dtype(FORMATS[name])).astype(np.float32))


@pytest.mark.parametrize("name", CASTABLE)
def test_rounding_agrees_with_torch_casts(name, patterns):
    by_torch = patterns.to(FORMATS[name].dtype).to(torch.float32)
    assert not differences(FORMATS[name].quantize(patterns), by_torch).any()
    assert not differences(FORMATS[name].quantize_by_rounding(patterns), by_torch).any()


@pytest.mark.parametrize("name", [name for name in KNOWN_ELSEWHERE if name not in OTHERWISE_IN_ML_DTYPES])
def test_rounding_agrees_with_ml_dtypes(name, patterns):
    assert not differences(FORMATS[name].quantize(patterns), by_ml_dtypes(patterns, name)).any()


def test_e4m3_beyond_464_is_nan_in_ml_dtypes_and_what_the_installed_torch_says_here(patterns):
    ours, theirs = FORMATS["fp8_e4m3"].quantize(patterns), by_ml_dtypes(patterns, "fp8_e4m3")
    beyond = patterns.abs() > 464  # the tie between 448 and 480, which would be next
    assert theirs[beyond].isnan().all()
    torch_saturates = torch.tensor(1e9).to(torch.float8_e4m3fn).float().item() == 448
    if torch_saturates:
        assert torch.equal(ours[beyond], 448 * patterns[beyond].sign())
    else:
        assert ours[beyond].isnan().all()
    assert not differences(ours[~beyond], theirs[~beyond]).any()


def test_where_torch_gives_nan_e4m3_is_that_of_ml_dtypes(patterns):
    older = dataclasses.replace(FORMATS["fp8_e4m3"])
    vars(older)["overflow"] = "nan"  # as the cast of torch 2.11 answers
    assert not differences(older.quantize_by_rounding(patterns), by_ml_dtypes(patterns, "fp8_e4m3")).any()
    assert [older.encode(value) for value in (464, 465, -math.inf)] == [0x7E, 0x7F, 0xFF]
    assert older.next_up(448) is None


def test_e8m0_has_no_sign_here_and_is_nan_for_zero_and_below_in_ml_dtypes(patterns):
    ours, theirs = FORMATS["e8m0"].quantize(patterns), by_ml_dtypes(patterns, "e8m0")
    positive = patterns > 0
    assert theirs[~positive].isnan().all()
    assert not differences(ours, FORMATS["e8m0"].quantize(patterns.abs())).any()
    assert not differences(ours[positive], theirs[positive]).any()


def test_e2m1_agrees_with_ml_dtypes_but_for_nan(patterns):
    ours, theirs = FORMATS["fp4_e2m1"].quantize(patterns), by_ml_dtypes(patterns, "fp4_e2m1")
    is_nan = patterns.isnan()
    assert (ours[is_nan] == 6).all()
    assert (theirs[is_nan] == 0).all()
    assert not differences(ours[~is_nan], theirs[~is_nan]).any()


@pytest.mark.parametrize("name", [*KNOWN_NOWHERE, "fp4_e2m1", "fp16", "fp8_e5m2", "fp8_e5m2fnuz"])
def test_rounding_agrees_with_integer_arithmetic(name, patterns):
    float_format = FORMATS[name]
    sample = patterns if name in (*KNOWN_NOWHERE, "fp4_e2m1") else patterns[9 * 10**6 :]
    sample = sample if float_format.has_nan else sample.nan_to_num(nan=float_format.max)
    bits = np.array_split(sample.numpy().view(np.uint32), 20)
    expected = np.concatenate([rounded_by_integers(part, float_format) for part in bits])
    assert not differences(float_format.quantize(sample), torch.from_numpy(expected)).any()


@pytest.mark.parametrize("name", FORMATS)
def test_encode_and_decode_agree_with_quantize(name, patterns):
    float_format = FORMATS[name]
    sample = torch.cat([patterns[10**7 :: 97], patterns[:1000]])
    one_by_one = torch.tensor([float_format.fields(value).value for value in sample.tolist()])
    assert not differences(one_by_one, float_format.quantize(sample)).any()


@pytest.mark.parametrize("name", FORMATS)
def test_any_layout_of_memory(name):
    float_format, x = FORMATS[name], torch.randn(6, 8).T.contiguous().T
    expected = [float_format.fields(value).value for value in x.flatten().tolist()]
    result = float_format.quantize(x)
    assert (result.shape, result.dtype) == (x.shape, torch.float32)
    assert result.flatten().tolist() == expected
    assert float_format.quantize(x[::2, ::3]).tolist() == result[::2, ::3].tolist()
    assert float_format.quantize(x[1, 1]).shape == ()
    assert float_format.quantize(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("name", FORMATS)
def test_the_result_is_new_and_carries_no_gradient(name):
    x = torch.full((3,), 1.5, requires_grad=True)
    result = FORMATS[name].quantize(x)
    assert not result.requires_grad
    result.zero_()
    assert x.tolist() == [1.5, 1.5, 1.5]


@pytest.mark.parametrize("name", FORMATS)
def test_the_device_stays(name):
    for method in (FORMATS[name].quantize, FORMATS[name].quantize_by_rounding):
        assert method(torch.empty(2, 3, device="meta")).device.type == "meta"


def test_half_precision_is_taken_and_double_is_not():
    for dtype in (torch.float16, torch.bfloat16):
        assert FORMATS["fp8_e4m3"].quantize(torch.tensor([1.1], dtype=dtype)).tolist() == [1.125]
    for wrong in (torch.tensor([1.0], dtype=torch.float64), torch.tensor([1]), [1.0]):
        with pytest.raises(TypeError, match="Give a float32 tensor"):
            FORMATS["fp16"].quantize(wrong)


@pytest.mark.parametrize("name", ["tf32", "fp16", "bf16", "fp8_e4m3", "fp4_e2m1"])
def test_stochastic_rounding_takes_a_neighbour_and_is_right_on_average(name):
    float_format, generator = FORMATS[name], torch.Generator().manual_seed(0)
    for value in (1.3, -2.7, 0.3 * float_format.smallest_normal, 0.2 * float_format.smallest_subnormal):
        value = torch.tensor(value).item()  # what float32 makes of it, the subnormals of tf32 included
        draws = float_format.round_stochastically(torch.full((40_000,), value), generator).double()
        sides = sorted(set(draws.tolist()))
        assert len(sides) == 2
        assert sides[0] < value < sides[1]
        assert float_format.next_up(sides[0]) == sides[1]
        assert abs(draws.mean() - value) < 4 * 0.5 * (sides[1] - sides[0]) / math.sqrt(40_000)


@pytest.mark.parametrize("name", FORMATS)
def test_stochastic_rounding_leaves_values_of_the_format_alone(name):
    float_format = FORMATS[name]
    codes = np.linspace(0, float_format.max_code, 200).astype(int).tolist()
    values = torch.tensor([float_format.decode(code) for code in codes])
    values = values[values > 2.0**-127]  # where E8M0 does not round as it reads
    assert torch.equal(float_format.round_stochastically(values.repeat(50)), values.repeat(50))


def test_the_lowest_possible_draw_rounds_up_what_is_between_two_values_only(
    monkeypatch,
):
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.zeros(shape))
    between = torch.tensor([256.0, 256.001, 258.0])
    assert FORMATS["bf16"].round_stochastically(between).tolist() == [256, 258, 258]


def test_stochastic_rounding_overflows_like_the_format():
    x = torch.tensor([1e9, -math.inf, math.nan])
    assert FORMATS["fp16"].round_stochastically(x)[:2].tolist() == [math.inf, -math.inf]
    assert FORMATS["fp16"].round_stochastically(x)[2].isnan()
    assert FORMATS["fp4_e2m1"].round_stochastically(x).tolist() == [6, -6, 6]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("name", FORMATS)
def test_a_gpu_rounds_to_the_same_bits(name, patterns):
    on_gpu = FORMATS[name].quantize_by_rounding(patterns.cuda()).cpu()
    assert not differences(on_gpu, FORMATS[name].quantize_by_rounding(patterns)).any()
    cast = FORMATS[name].quantize(patterns.cuda()).cpu()
    within = patterns.abs() <= FORMATS[name].max  # casts may overflow differently per device
    assert not differences(cast[within], on_gpu[within]).any()
