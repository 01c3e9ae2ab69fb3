"""Matrix products with rounded operands and accumulators, against loops and PyTorch's own dtypes."""

import pytest
import torch

from amp_lessons.formats import FORMATS, product, product_errors, tf32_product


def matrices(rows, inner, columns, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, inner, generator=generator), torch.randn(inner, columns, generator=generator)


@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_low_precision_accumulation_rounds_each_partial_sum(name, dtype):
    a, b = matrices(3, 40, 2)
    expected = torch.zeros(3, 2)
    for row in range(3):
        for column in range(2):
            total = torch.zeros((), dtype=dtype)
            for left, right in zip(a[row].to(dtype), b[:, column].to(dtype), strict=True):
                total = (total.float() + left.float() * right.float()).to(dtype)
            expected[row, column] = total
    assert torch.equal(product(a, b, FORMATS[name], FORMATS[name]), expected)


@pytest.mark.parametrize("name", ["fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp4_e2m1"])
def test_with_fp32_accumulation_only_the_operands_are_rounded(name):
    a, b = matrices(8, 64, 8)
    exact = FORMATS[name].quantize(a).double() @ FORMATS[name].quantize(b).double()
    assert product(a, b, FORMATS[name]).dtype == torch.float32
    assert torch.allclose(product(a, b, FORMATS[name]).double(), exact, rtol=0, atol=2e-5)


def test_errors_are_those_of_the_products_of_the_leading_parts():
    a, b = matrices(4, 32, 4)
    for accumulator in (FORMATS["fp32"], FORMATS["bf16"]):
        errors = product_errors(a, b, FORMATS["bf16"], accumulator, [1, 8, 32])
        for k, error in zip([1, 8, 32], errors, strict=True):
            exact = a[:, :k].double() @ b[:k].double()
            approximate = product(a[:, :k], b[:k], FORMATS["bf16"], accumulator).double()
            assert error == pytest.approx(float((approximate - exact).norm() / exact.norm()), rel=1e-6)


@pytest.mark.parametrize("before", ["ieee", "tf32"])
def test_the_matmul_precision_is_put_back(before):
    matmul = torch.backends.cuda.matmul
    default = matmul.fp32_precision
    try:
        matmul.fp32_precision = before
        product(*matrices(2, 2, 2), FORMATS["fp16"])
        assert matmul.fp32_precision == before
    finally:
        matmul.fp32_precision = default


def test_bad_input_is_answered_in_words():
    a, b = matrices(2, 3, 4)
    for left, right in ((a, a), (a[0], b), (a[:, :0], b[:0])):
        with pytest.raises(ValueError, match="Give matrices"):
            product(left, right, FORMATS["fp16"])
    with pytest.raises(ValueError, match="run from 1 to 3"):
        product_errors(a, b, FORMATS["fp16"], FORMATS["fp32"], [4])
    with pytest.raises(ValueError, match=r"8\.0"):
        tf32_product(a, b)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_in_tf32_is_about_as_far_off_as_the_emulation():
    a, b = (x.cuda() for x in matrices(256, 1024, 256))
    exact = a.double() @ b.double()
    emulated, real, fp32 = (
        float((x.double() - exact).norm() / exact.norm())
        for x in (product(a, b, FORMATS["tf32"]), tf32_product(a, b), product(a, b, FORMATS["fp32"]))
    )
    assert fp32 < emulated / 100
    assert 0.5 * emulated < real < 3 * emulated  # the hardware may truncate operands instead of rounding them
