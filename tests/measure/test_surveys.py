"""A quick survey: what it is made of, and the arithmetic on hand-made rates."""

from __future__ import annotations

from itertools import product

import pytest

from amp_lessons.measure import OPERATIONS, Rate, Roofline, Survey, Timing, survey

pytestmark = pytest.mark.slow


def _product(size, gflop_per_s):
    flop = 2.0 * size**3
    timing = Timing((flop / gflop_per_s / 1e6,) * 3, "cpu")
    return Rate("matrix product", "fp32", size, flop, 12 * size**2, timing)


COPY = Rate("copy", "fp32", 10**8, 0.0, 10**8, Timing((10.0,) * 3, "cpu"))  # 10 GB/s
FOUND = Survey(Roofline("cpu", (_product(256, 100.0),), (COPY,)), ())


def test_a_survey_knows_every_operation_in_every_precision():
    found = survey(device="cpu", precisions=["fp32", "bf16"], seconds_per_point=0.001)
    assert found.roofline.precisions == ("fp32", "bf16")
    measured = [(rate.precision, rate.operation) for rate in found.operations]
    assert measured == list(product(("fp32", "bf16"), OPERATIONS))
    for rate in found.operations:
        if rate.operation == "matrix product":
            assert rate.flop_per_s <= found.roofline.flop_per_s(rate.precision)
    assert found.measure_product(16, "fp32").size == 16


def test_a_faster_product_raises_the_roof_and_a_slower_one_does_not():
    assert FOUND.with_product(_product(512, 120.0)).roofline.flop_per_s("fp32") == pytest.approx(120e9)
    assert FOUND.with_product(_product(512, 80.0)).roofline.flop_per_s("fp32") == pytest.approx(100e9)


def test_the_fraction_is_of_what_the_roof_allows_at_that_intensity():
    # 600: intensity 100, beyond the ridge at 10: 100 GFLOP/s. 6: intensity 1, so 10 GFLOP/s.
    assert FOUND.fraction_of_roof(_product(600, 50.0)) == pytest.approx(0.5)
    assert FOUND.fraction_of_roof(_product(6, 5.0)) == pytest.approx(0.5)


def test_a_product_that_takes_too_long_is_refused_with_the_largest_that_does_not():
    most = FOUND.largest_size("fp32")
    assert 2 * most**3 / 100e9 == pytest.approx(0.3, rel=0.01)
    with pytest.raises(ValueError, match=f"up to {most:,} it is measured"):
        FOUND.measure_product(most + 1, "fp32")


def test_only_square_products_count_as_measured_before():
    assert FOUND.square_product(256, "fp32") == FOUND.roofline.products[0]
    layer = Rate("layer", "fp32", 512, 1.0, 1, Timing((1.0,) * 3, "cpu"))
    assert FOUND.with_product(layer).square_product(512, "fp32") is None
