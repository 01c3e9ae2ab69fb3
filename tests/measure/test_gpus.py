"""Data sheets: plausible against each other and against which GPU has which tensor cores."""

from __future__ import annotations

import pytest

from amp_lessons.measure import GPUS, PRECISIONS


@pytest.mark.parametrize("name", GPUS)
def test_each_sheet_names_its_source_and_known_precisions(name: str) -> None:
    sheet = GPUS[name]
    assert sheet.source.startswith("https://")
    assert set(sheet.flop_per_s) <= {*PRECISIONS, "fp8_e4m3", "fp4_e2m1"}
    assert 0 < sheet.usable_bytes < sheet.memory_bytes


def test_lower_precision_is_never_slower_and_fp8_doubles_fp16() -> None:
    for sheet in GPUS.values():
        rates = [
            sheet.flop_per_s[name]
            for name in ("fp32", "tf32", "fp16", "fp8_e4m3", "fp4_e2m1")
            if name in sheet.flop_per_s
        ]
        assert rates == sorted(rates)
        if "fp4_e2m1" in sheet.flop_per_s:
            assert sheet.flop_per_s["fp4_e2m1"] == pytest.approx(2 * sheet.flop_per_s["fp8_e4m3"], rel=0.01)
        if "fp8_e4m3" in sheet.flop_per_s:
            assert sheet.flop_per_s["fp8_e4m3"] == pytest.approx(2 * sheet.flop_per_s["fp16"], rel=0.01)


def test_integers_of_8_bits_are_twice_as_fast_as_fp16_added_up_in_fp16() -> None:
    for sheet in GPUS.values():
        gaming = sheet.name.startswith("RTX")  # half as fast where sums are fp32
        times = 0 if "V100" in sheet.name else 4 if gaming else 2
        assert sheet.int8_per_s == pytest.approx(times * sheet.flop_per_s["fp16"], rel=0.01)


def test_ridge_point_of_an_h100() -> None:
    assert GPUS["H100 SXM"].ridge_point("bf16") == pytest.approx(295, rel=0.01)


PRINTED_GB = {
    "T4": 16,
    "V100 SXM2 16 GB": 16,
    "V100 SXM2 32 GB": 32,
    "L4": 24,
    "RTX 3090": 24,
    "RTX 4090": 24,
    "A100 SXM 40 GB": 40,
    "A100 SXM 80 GB": 80,
    "H100 SXM": 80,
    "H200 SXM": 141,
    "B200 SXM": 180,
    "MI300X": 192,
    "MI350X": 288,
}


@pytest.mark.parametrize("name", GPUS)
def test_memory_is_what_devices_report_which_is_less_than_that_many_gib(name: str) -> None:
    assert 0.9 * PRINTED_GB[name] * 2**30 < GPUS[name].memory_bytes < PRINTED_GB[name] * 2**30


def test_the_roof_is_memory_up_to_the_ridge_and_arithmetic_beyond() -> None:
    a100 = GPUS["A100 SXM 80 GB"]
    assert a100.attainable_flop_per_s("fp16", 1.0) == a100.bytes_per_s
    assert a100.attainable_flop_per_s("fp16", 1e3) == a100.flop_per_s["fp16"]


def test_a_roof_promises_a_product_half_the_bytes_at_twice_the_intensity() -> None:
    a100 = GPUS["A100 SXM 80 GB"]
    wide, half = (a100.roof(name).promise(16) for name in ("fp32", "fp16"))
    assert wide.intensity == pytest.approx(2 * 16**3 / (3 * 16**2 * 4))
    assert half.intensity == pytest.approx(2 * wide.intensity)
    assert (wide.flop_per_s, half.flop_per_s) == pytest.approx(
        (wide.intensity * 2039e9, half.intensity * 2039e9)
    )
    assert a100.roof("fp16").promise(8192).flop_per_s == 312e12
