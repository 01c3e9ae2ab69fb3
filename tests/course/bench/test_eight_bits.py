"""FP8 as a precision of the benchmark: its layers against those of ``fp8``, and devices without."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons import fp8
from amp_lessons.course.bench import cases, eight_bits
from amp_lessons.course.bench.cases import BenchCase, measure
from amp_lessons.formats import relative_error
from amp_lessons.measure import precisions_on
from tests.course.bench.tiny import TinyModel, TinyWorkload, measured

CPU = torch.device("cpu")
needs_fp8 = pytest.mark.skipif(
    not torch.cuda.is_available() or eight_bits.refusal("cuda") is not None,
    reason="needs a CUDA GPU with FP8 kernels",
)


def network(inputs=48, outputs=32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


def pass_through(model, device="cpu", rows=20):
    """Return output, and gradients of input and parameters, of a pass under autocast."""
    x = torch.randn(rows, 3, 48, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        output = model(x)
    output.float().square().mean().backward()
    return [output.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


def converted(model):
    """Return a model and how many of its layers compute in 8 bits now."""
    return model, eight_bits.convert(model)


def one_layer(device="cpu"):
    """Return one layer alone, ours and emulated: behind two, a bf16 rounded elsewhere is another number."""
    ours, count = converted(network()[:1].to(device))
    assert count == 1
    return ours, fp8.convert(network()[:1].to(device), "tensorwise", keep=(), engine="emulated")


@pytest.mark.parametrize("rows", [16, 20, 1])
def test_its_layers_compute_what_the_recipe_of_that_name_does(rows):
    for found, right in zip(*(pass_through(each, rows=rows) for each in one_layer()), strict=True):
        assert (found.dtype, found.shape) == (right.dtype, right.shape)
        assert relative_error(found, right) < 2**-9


def test_it_is_eight_bits_indeed_and_in_one_graph():
    ours, _ = converted(network())
    errors = [relative_error(a, b) for a, b in zip(pass_through(ours), pass_through(network()), strict=True)]
    assert 0.01 < max(errors) < 0.1
    assert torch._dynamo.explain(ours)(torch.randn(16, 48)).graph_break_count == 0


def test_masters_stay_and_what_does_not_fit_is_left_alone():
    model = network(outputs=10)
    before = model[0].weight
    assert eight_bits.convert(model) == 1
    assert model[0].weight is before
    assert (type(model[0]), type(model[2])) == (eight_bits.KernelLinear, nn.Linear)
    assert eight_bits.convert(nn.Sequential(nn.Embedding(16, 16))) == 0


def test_a_gradient_may_lie_in_memory_as_it_likes_and_be_zero():
    ours, _ = one_layer()
    x = torch.randn(16, 48, requires_grad=True)
    expanded = torch.autograd.grad(ours(x).sum(), x)[0]
    turned = torch.autograd.grad(ours(x), x, torch.ones(64, 16).t().bfloat16())[0]
    assert torch.equal(expanded, turned)
    zeros = torch.zeros(16, 48, requires_grad=True)
    ours(zeros).sum().backward()
    assert ours[0].weight.grad.abs().sum() == 0
    assert zeros.grad.isfinite().all()


def test_a_cpu_says_why_it_has_none():
    assert eight_bits.precisions_on(CPU) == precisions_on(CPU)
    result = measure(BenchCase("BERT-Large", "fp8", "eager", "small"), batch=1, device=CPU, seconds=0.01)
    assert result.outcome == "not supported"
    assert result.message.startswith("cpu has no fp8: a CPU has no FP8 units")


@pytest.fixture
def pretended(monkeypatch, tiny):
    """A device that has kernels for FP8, slow as they are: the CPU."""
    monkeypatch.setattr(eight_bits, "refusal", lambda device: None)


@pytest.mark.usefixtures("pretended")
def test_where_there_are_kernels_a_step_is_timed_unless_it_cannot_fit_in_bf16(monkeypatch):
    assert eight_bits.precisions_on(CPU)[-1] == "fp8"
    result = measured("fp8")
    assert (result.key, result.outcome, result.message) == (("Tiny", "fp8", "eager"), "measured", "")
    assert result.timing.median_ms > 0
    assert (result.peak_bytes, result.predicted_bytes) == (None, None)
    monkeypatch.setattr(cases, "free_bytes", lambda device: 60_000)
    assert measured("fp8").outcome == "does not fit"


@pytest.mark.usefixtures("pretended")
def test_what_is_compiled_is_the_converted_model(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    assert measured("fp8", "compiled").outcome == "measured"
    assert type(compiled[0].layer) is eight_bits.KernelLinear


@pytest.mark.usefixtures("pretended")
def test_a_model_without_such_layers_is_told(monkeypatch):
    class Odd(TinyModel):
        def __init__(self):
            super().__init__(lambda: None)
            self.layer = nn.Linear(64, 63)

    monkeypatch.setattr(TinyWorkload, "build", lambda self, preset="full": Odd())
    result = measured("fp8")
    no_layer = "no layer is an nn.Linear whose sides are multiples of 16"
    assert (result.outcome, result.message) == ("not supported", no_layer)


@pytest.mark.gpu
@needs_fp8
@pytest.mark.parametrize("rows", [16, 20])
def test_a_gpu_computes_what_the_emulation_does(rows):
    made, right = (pass_through(each, "cuda", rows) for each in one_layer("cuda"))
    assert all(relative_error(a, b) < 2**-7 for a, b in zip(made, right, strict=True))


@pytest.mark.gpu
@needs_fp8
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_gpu_is_benchmarked_in_fp8(mode):
    pytest.importorskip("transformers")
    case = BenchCase("BERT-Large", "fp8", mode, "small")
    result = measure(case, batch=4, device=torch.device("cuda"), seconds=0.1)
    assert (result.outcome, result.message) == ("measured", "")
