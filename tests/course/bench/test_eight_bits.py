"""FP8 as a precision of the benchmark: its layers against those of ``fp8``, and devices without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amp_lessons import fp8
from amp_lessons.course.bench import cases, eight_bits
from amp_lessons.course.bench.cases import BenchCase, measure, predicted_bytes
from amp_lessons.course.bench.workloads import WORKLOADS
from amp_lessons.formats import relative_error
from amp_lessons.measure import precisions_on
from tests.course.bench.tiny import TinyModel, TinyWorkload

CPU = torch.device("cpu")
needs_fp8 = pytest.mark.skipif(
    not torch.cuda.is_available() or eight_bits.refusal("cuda") is not None,
    reason="needs a CUDA GPU with FP8 kernels",
)


def network(inputs: int = 48, outputs: int = 32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, outputs))


def pass_through(model: nn.Module, device: str = "cpu", rows: int = 20) -> list[Tensor]:
    """Return output, and gradients of input and parameters, of a pass under autocast."""
    x = torch.randn(rows, 3, 48, generator=torch.Generator().manual_seed(1)).to(device).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        output = model(x)
    output.float().square().mean().backward()
    return [output.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]  # type: ignore[list-item]


def layer() -> nn.Sequential:
    """Return one layer alone: behind two, a bf16 rounded elsewhere is another number in 8 bits."""
    return network()[:1]


@pytest.mark.parametrize("rows", [16, 20, 1])
def test_its_layers_compute_what_the_recipe_of_that_name_does(rows: int) -> None:
    ours, theirs = layer(), fp8.convert(layer(), "tensorwise", keep=(), engine="emulated")
    assert eight_bits.convert(ours) == 1
    for found, right in zip(pass_through(ours, rows=rows), pass_through(theirs, rows=rows), strict=True):
        assert (found.dtype, found.shape) == (right.dtype, right.shape)
        assert relative_error(found, right) < 2**-9


def test_it_is_eight_bits_indeed() -> None:
    ours = network()
    eight_bits.convert(ours)
    errors = [relative_error(a, b) for a, b in zip(pass_through(ours), pass_through(network()), strict=True)]
    assert 0.01 < max(errors) < 0.1


def test_masters_stay_and_what_does_not_fit_is_left_alone() -> None:
    model = network(outputs=10)
    before = model[0].weight
    assert eight_bits.convert(model) == 1
    assert model[0].weight is before
    assert (type(model[0]), type(model[2])) == (eight_bits.KernelLinear, nn.Linear)
    assert eight_bits.convert(nn.Sequential(nn.Embedding(16, 16))) == 0


def test_a_gradient_may_lie_in_memory_as_it_likes() -> None:
    ours = layer()
    eight_bits.convert(ours)
    x = torch.randn(16, 48, requires_grad=True)
    expanded = torch.autograd.grad(ours(x).sum(), x)[0]
    turned = torch.autograd.grad(ours(x), x, torch.ones(64, 16).t().bfloat16())[0]
    assert torch.equal(expanded, turned)


def test_zeros_give_zeros() -> None:
    layer = nn.Linear(16, 16, bias=False)
    eight_bits.convert(layer)
    x = torch.zeros(16, 16, requires_grad=True)
    layer(x).sum().backward()
    assert layer.weight.grad.abs().sum() == 0  # type: ignore[union-attr]
    assert x.grad.isfinite().all()  # type: ignore[union-attr]


def test_a_cpu_says_why_it_has_none() -> None:
    assert eight_bits.precisions_on(CPU) == precisions_on(CPU)
    result = measure(BenchCase("BERT-Large", "fp8", "eager", "small"), batch=1, device=CPU, seconds=0.01)
    assert result.outcome == "not supported"
    assert result.message.startswith("cpu has no fp8: a CPU has no FP8 units")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has kernels for FP8, slow as they are: the CPU."""
    monkeypatch.setattr(eight_bits, "refusal", lambda device: None)
    monkeypatch.setitem(WORKLOADS, "Tiny", TinyWorkload())  # type: ignore[arg-type]
    predicted_bytes.cache_clear()


def _measure(mode: Any = "eager") -> Any:
    return measure(BenchCase("Tiny", "fp8", mode, "small"), batch=8, device=CPU, seconds=0.01)


@pytest.mark.usefixtures("pretended")
def test_where_there_are_kernels_a_step_is_timed() -> None:
    assert eight_bits.precisions_on(CPU)[-1] == "fp8"
    result = _measure()
    assert (result.key, result.outcome, result.message) == (("Tiny", "fp8", "eager"), "measured", "")
    assert result.timing.median_ms > 0
    assert (result.peak_bytes, result.predicted_bytes) == (None, None)


@pytest.mark.usefixtures("pretended")
def test_what_is_compiled_is_the_converted_model(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    assert _measure("compiled").outcome == "measured"
    assert type(compiled[0].layer) is eight_bits.KernelLinear


@pytest.mark.usefixtures("pretended")
def test_what_cannot_fit_in_bf16_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "free_bytes", lambda device: 60_000)
    assert _measure().outcome == "does not fit"


@pytest.mark.usefixtures("pretended")
def test_a_model_without_such_layers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(TinyModel):
        def __init__(self) -> None:
            super().__init__(lambda: None)
            self.layer = nn.Linear(64, 63)

    monkeypatch.setattr(TinyWorkload, "build", lambda self, preset="full": Odd())
    result = _measure()
    assert (result.outcome, result.message) == (
        "not supported",
        "no layer is an nn.Linear whose sides are multiples of 16",
    )


def test_a_compiler_traces_its_layers_in_one_graph() -> None:
    model = network()
    eight_bits.convert(model)
    explained = torch._dynamo.explain(model)(torch.randn(16, 48))
    assert explained.graph_break_count == 0


@pytest.mark.gpu
@needs_fp8
@pytest.mark.parametrize("rows", [16, 20])
def test_a_gpu_computes_what_the_emulation_does(rows: int) -> None:
    ours, theirs = layer().cuda(), fp8.convert(layer().cuda(), "tensorwise", keep=(), engine="emulated")
    eight_bits.convert(ours)
    made, right = (pass_through(each, "cuda", rows) for each in (ours, theirs))
    assert all(relative_error(a, b) < 2**-7 for a, b in zip(made, right, strict=True))


@pytest.mark.gpu
@needs_fp8
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_gpu_is_benchmarked_in_fp8(mode: Any) -> None:
    pytest.importorskip("transformers")
    case = BenchCase("BERT-Large", "fp8", mode, "small")
    result = measure(case, batch=4, device=torch.device("cuda"), seconds=0.1)
    assert (result.outcome, result.message) == ("measured", "")
