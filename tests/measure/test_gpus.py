"""Data sheets: plausible against each other and against which GPU has which tensor cores."""

from __future__ import annotations

import pytest

from amp_lessons.measure import GPUS, PRECISIONS

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
def test_a_sheet_names_its_source_and_is_plausible_in_itself(name):
    sheet = GPUS[name]
    assert sheet.source.startswith("https://")
    assert set(sheet.flop_per_s) <= {*PRECISIONS, "fp8_e4m3", "fp4_e2m1"}
    # what such devices report, which is less than that many GiB
    assert 0.9 * PRINTED_GB[name] * 2**30 < sheet.memory_bytes < PRINTED_GB[name] * 2**30
    assert 0 < sheet.usable_bytes < sheet.memory_bytes
    by_range = ("fp32", "tf32", "fp16", "fp8_e4m3", "fp4_e2m1")
    rates = [sheet.flop_per_s[each] for each in by_range if each in sheet.flop_per_s]
    assert rates == sorted(rates), "a lower precision is never slower"
    for half, whole in (("fp8_e4m3", "fp16"), ("fp4_e2m1", "fp8_e4m3")):
        if half in sheet.flop_per_s:
            assert sheet.flop_per_s[half] == pytest.approx(2 * sheet.flop_per_s[whole], rel=0.01)
    # integers of 8 bits are twice as fast as fp16 added up in fp16; gaming GPUs are half as fast in fp32
    times = 0 if "V100" in name else 4 if name.startswith("RTX") else 2
    assert sheet.int8_per_s == pytest.approx(times * sheet.flop_per_s["fp16"], rel=0.01)


def test_the_roof_is_memory_up_to_the_ridge_and_arithmetic_beyond():
    assert GPUS["H100 SXM"].ridge_point("bf16") == pytest.approx(295, rel=0.01)
    a100 = GPUS["A100 SXM 80 GB"]
    assert a100.attainable_flop_per_s("fp16", 1.0) == a100.bytes_per_s
    assert a100.attainable_flop_per_s("fp16", 1e3) == a100.flop_per_s["fp16"]


def test_a_roof_promises_a_product_half_the_bytes_at_twice_the_intensity():
    a100 = GPUS["A100 SXM 80 GB"]
    wide, half = (a100.roof(name).promise(16) for name in ("fp32", "fp16"))
    assert wide.intensity == pytest.approx(2 * 16**3 / (3 * 16**2 * 4))
    assert half.intensity == pytest.approx(2 * wide.intensity)
    rates = wide.intensity * 2039e9, half.intensity * 2039e9
    assert (wide.flop_per_s, half.flop_per_s) == pytest.approx(rates)
    assert a100.roof("fp16").promise(8192).flop_per_s == 312e12
