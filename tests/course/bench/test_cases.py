"""Cases of the benchmark on a tiny model, and everything that can go wrong in one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from amp_lessons.course.bench import cases
from amp_lessons.course.bench.cases import (
    BenchCase,
    all_cases,
    fitting_batch,
    measure,
    predicted_bytes,
    training_step,
)
from amp_lessons.course.bench.workloads import WORKLOADS, benched
from amp_lessons.measure import PRECISIONS
from tests.course.bench.tiny import TinyModel, TinyWorkload

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(**options: Any) -> None:
        monkeypatch.setitem(WORKLOADS, "Tiny", TinyWorkload(**options))  # type: ignore[arg-type]
        predicted_bytes.cache_clear()

    install()
    return install


def _measure(precision: str = "fp32", mode: Any = "eager", batch: int = 8) -> Any:
    return measure(BenchCase("Tiny", precision, mode, "small"), batch=batch, device=CPU, seconds=0.01)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_case_is_timed_and_its_memory_is_what_was_predicted(precision: str) -> None:
    result = _measure(precision)
    assert (result.key, result.outcome, result.message) == (("Tiny", precision, "eager"), "measured", "")
    assert result.timing.median_ms > 0
    assert result.first_call_ms > 0
    assert result.peak_bytes == result.predicted_bytes > 16 * 64 * 64
    assert result.batch == 8


@pytest.mark.usefixtures("tiny")
def test_compiled_code_is_timed_without_a_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    result = _measure(mode="compiled")
    assert isinstance(compiled[0], TinyModel)
    assert (result.outcome, result.peak_bytes) == ("measured", None)
    assert result.predicted_bytes > 0


@pytest.mark.gpu
@pytest.mark.usefixtures("tiny")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_compiler_really_runs() -> None:
    case = BenchCase("Tiny", "fp16", "compiled", "small")
    result = measure(case, batch=8, device=torch.device("cuda"), seconds=0.1)
    assert (result.outcome, result.message) == ("measured", "")


def _raise(error: BaseException) -> Callable[[], None]:
    def trouble() -> None:
        raise error

    return trouble


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nsee docs"),
            "out of memory",
            "Tried to",
        ),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory", "can't allocate"),
        (RuntimeError("\n  no compiler found\n"), "failed", "RuntimeError: no compiler found"),
        (ValueError(""), "failed", "ValueError: no message"),
    ],
)
def test_a_failure_becomes_a_result_in_words(
    tiny: Callable[..., None], error: Exception, outcome: str, words: str
) -> None:
    tiny(trouble=_raise(error))
    result = _measure()
    assert (result.outcome, result.timing) == (outcome, None)
    assert words in result.message
    assert "\n" not in result.message


def test_an_interruption_is_not_swallowed(tiny: Callable[..., None]) -> None:
    tiny(trouble=_raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        _measure()


@pytest.mark.usefixtures("tiny")
def test_what_does_not_fit_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "free_bytes", lambda device: 60_000)
    result = _measure()
    assert result.outcome == "does not fit"
    assert result.message.startswith("a step needs about ")
    assert ", 58.6 KiB are free on cpu" in result.message
    assert _measure(batch=0).message.startswith("not even a batch of one")


def test_the_batch_is_halved_until_it_fits(
    tiny: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny(largest_batch=4096)

    def peak(batch: int) -> int:
        return predicted_bytes("Tiny", "small", batch, "fp32", "cpu")

    for capacity, batch in [(peak(4096), 4096), (peak(4096) - 1, 2048), (peak(16), 16), (peak(1) - 1, 0)]:
        monkeypatch.setattr(cases, "free_bytes", lambda device, capacity=capacity: capacity)
        assert fitting_batch("Tiny", "small", CPU) == batch


@pytest.mark.usefixtures("tiny")
def test_tf32_is_not_pretended_on_a_cpu() -> None:
    result = _measure("tf32")
    assert (result.outcome, result.message) == ("not supported", "cpu has no tf32")


def test_cases_of_a_model_follow_each_other() -> None:
    found = all_cases(["A", "B"], iter(["fp32", "fp16"]), ["eager", "compiled"], "full")
    assert [case.model for case in found] == ["A"] * 4 + ["B"] * 4
    assert len({case.key for case in found}) == 8


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_a_training_step_trains_as_the_lessons_do(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, scaled = PRECISIONS[precision], []
    scale = torch.amp.GradScaler.scale
    monkeypatch.setattr(
        torch.amp.GradScaler,
        "scale",
        lambda self, loss: scaled.append(self.is_enabled()) or scale(self, loss),
    )
    model, x = TinyModel(lambda: None), torch.randn(8, 64)
    dtypes = []
    model.layer.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    before = model.layer.weight.detach().clone()
    step = training_step(model, {"x": x}, kind, "eager", "cpu")
    step()
    assert dtypes == [kind.autocast_dtype or torch.float32]
    assert scaled == [precision == "fp16"]
    assert model.layer.weight.dtype == torch.float32
    # AdamW's first step moves every weight that has a gradient by the learning rate.
    moved = (model.layer.weight - before).abs()
    assert moved.median().item() == pytest.approx(1e-5, rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("model", benched())
def test_the_predicted_peak_is_the_gpus_within_a_tenth(model: str, precision: str) -> None:
    pytest.importorskip("transformers")
    device = torch.device("cuda")
    batch = fitting_batch(model, "full", device)
    result = measure(BenchCase(model, precision, "eager", "full"), batch=batch, device=device, seconds=0.1)
    assert result.outcome == "measured", result.message
    assert result.predicted_bytes == pytest.approx(result.peak_bytes, rel=0.1)
