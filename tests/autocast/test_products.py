"""Products in 16 bits that are computed in fp32."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import autocast, devices
from amp_lessons.autocast.cuda_on_cpu import gpu_kernels
from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import ProductsInFp32


def half(*shape):
    return torch.randn(*shape).half().requires_grad_()


PRODUCTS = {
    "mm": (torch.mm, lambda: [half(3, 4), half(4, 5)]),
    "addmm": (torch.addmm, lambda: [half(3, 5), half(3, 4), half(4, 5)]),
    "bmm": (torch.bmm, lambda: [half(2, 3, 4), half(2, 4, 5)]),
    "conv2d": (F.conv2d, lambda: [half(1, 2, 5, 5), half(3, 2, 3, 3), half(3)]),
    "attention": (F.scaled_dot_product_attention, lambda: [half(1, 2, 4, 8) for _ in range(3)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_results_and_gradients_are_rounded_float32(name):
    function, arguments_of = PRODUCTS[name]
    arguments = arguments_of()
    with ProductsInFp32(torch.float16):
        result = function(*arguments)
        gradients = torch.autograd.grad(result.sum(), arguments)
    reference = function(*(argument.float() for argument in arguments))
    assert torch.equal(result, reference.half())
    expected = torch.autograd.grad(reference.sum(), arguments)
    for gradient, wanted in zip(gradients, expected, strict=True):
        assert gradient.dtype is torch.float16
        torch.testing.assert_close(gradient, wanted, rtol=2e-3, atol=2e-3)


def test_other_dtypes_and_operations_are_left_alone():
    x = torch.rand(3, 3)
    with ProductsInFp32(torch.float16):
        assert torch.equal(x @ x, torch.mm(x, x))
        assert (x.bfloat16() @ x.bfloat16()).dtype is torch.bfloat16
        assert torch.equal(x.half().exp(), x.half().exp())
        assert x.half().exp().dtype is torch.float16


@pytest.mark.parametrize(
    ("dtype", "computed_in"), [(torch.float16, torch.float32), (torch.bfloat16, torch.bfloat16)]
)
def test_a_recording_on_the_cpu_uses_them(dtype, computed_in):
    seen = set()

    class Below(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.mm.default:
                seen.add(args[0].dtype)
            return func(*args, **(kwargs or {}))

    with Below():
        ledger = autocast.record(torch.nn.Linear(4, 4, bias=False), torch.randn(2, 4), dtype=dtype)
    assert seen == {computed_in}
    assert ledger.rows[0].output_dtype is dtype


@pytest.mark.parametrize(("support", "exact"), [("fallback", True), ("emulated", False), ("native", False)])
def test_only_a_cpu_without_instructions_computes_bf16_in_fp32(monkeypatch, support, exact):
    machine = devices.describe()
    without = replace(machine, cpu=replace(machine.cpu, bf16=support, fp16="native"))
    monkeypatch.setattr(devices, "describe", lambda: without)
    entered = []
    monkeypatch.setattr(
        gpu_kernels, "ProductsInFp32", lambda *dtypes: entered.append(dtypes) or nullcontext()
    )

    @autocast.quick_products()
    def product(x):
        return x @ x

    for _ in range(2):
        assert product(torch.ones(2, 2).bfloat16()).dtype is torch.bfloat16
    assert entered == [(torch.bfloat16,)] * 2 * exact
