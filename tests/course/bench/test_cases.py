"""Cases of the benchmark on a tiny model, and everything that can go wrong in one."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.course.bench import cases
from amp_lessons.course.bench.cases import BenchCase, all_cases, fitting_batch, measure, predicted_bytes
from amp_lessons.course.bench.workloads import benched
from amp_lessons.measure import PRECISIONS
from tests.course.bench.tiny import TinyModel, measured

pytestmark = pytest.mark.slow

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_case_is_timed_and_its_memory_is_what_was_predicted(precision):
    result = measured(precision)
    assert (result.key, result.outcome, result.message) == (("Tiny", precision, "eager"), "measured", "")
    assert result.timing.median_ms > 0
    assert result.first_call_ms > 0
    assert result.peak_bytes == result.predicted_bytes > 16 * 64 * 64
    assert result.batch == 8


@pytest.mark.usefixtures("tiny")
def test_compiled_code_is_timed_without_a_peak(monkeypatch):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    result = measured(mode="compiled")
    assert isinstance(compiled[0], TinyModel)
    assert (result.outcome, result.peak_bytes) == ("measured", None)
    assert result.predicted_bytes > 0


@pytest.mark.gpu
@pytest.mark.usefixtures("tiny")
@on_a_gpu
def test_the_compiler_really_runs():
    result = measured("fp16", "compiled", device="cuda")
    assert (result.outcome, result.message) == ("measured", "")


def _raise(error):
    def trouble():
        raise error

    return trouble


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to\nsee docs"), "out of memory", "Tried to"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory", "can't allocate"),
        (RuntimeError("\n  no compiler found\n"), "failed", "RuntimeError: no compiler found"),
        (ValueError(""), "failed", "ValueError: no message"),
    ],
)
def test_a_failure_becomes_a_result_in_words(tiny, error, outcome, words):
    tiny(trouble=_raise(error))
    result = measured()
    assert (result.outcome, result.timing) == (outcome, None)
    assert words in result.message
    assert "\n" not in result.message


def test_an_interruption_is_not_swallowed(tiny):
    tiny(trouble=_raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        measured()


@pytest.mark.usefixtures("tiny")
def test_what_does_not_fit_or_is_not_there_is_not_even_tried(monkeypatch):
    no_tf32 = measured("tf32")
    assert (no_tf32.outcome, no_tf32.message) == ("not supported", "cpu has no tf32")
    monkeypatch.setattr(cases, "free_bytes", lambda device: 60_000)
    result = measured()
    assert result.outcome == "does not fit"
    assert result.message.startswith("a step needs about ")
    assert ", 58.6 KiB are free on cpu" in result.message
    assert measured(batch=0).message.startswith("not even a batch of one")


def test_the_batch_is_halved_until_it_fits(tiny, monkeypatch):
    tiny(largest_batch=4096)

    def peak(batch):
        return predicted_bytes("Tiny", "small", batch, "fp32", "cpu")

    for capacity, batch in [(peak(4096), 4096), (peak(4096) - 1, 2048), (peak(16), 16), (peak(1) - 1, 0)]:
        monkeypatch.setattr(cases, "free_bytes", lambda device, capacity=capacity: capacity)
        assert fitting_batch("Tiny", "small", torch.device("cpu")) == batch


def test_cases_of_a_model_follow_each_other():
    found = all_cases(["A", "B"], iter(["fp32", "fp16"]), ["eager", "compiled"], "full")
    assert [case.model for case in found] == ["A"] * 4 + ["B"] * 4
    assert len({case.key for case in found}) == 8


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
def test_a_training_step_trains_as_the_lessons_do(precision, monkeypatch):
    kind, scaled, dtypes, scale = PRECISIONS[precision], [], [], torch.amp.GradScaler.scale

    def watched(scaler, loss):
        scaled.append(scaler.is_enabled())
        return scale(scaler, loss)

    monkeypatch.setattr(torch.amp.GradScaler, "scale", watched)
    model = TinyModel(lambda: None)
    model.layer.register_forward_hook(lambda module, inputs, output: dtypes.append(output.dtype))
    before = model.layer.weight.detach().clone()
    cases.training_step(model, {"x": torch.randn(8, 64)}, kind, "eager", "cpu")()
    assert dtypes == [kind.autocast_dtype or torch.float32]
    assert scaled == [precision == "fp16"]
    assert model.layer.weight.dtype == torch.float32
    # AdamW's first step moves every weight that has a gradient by the learning rate.
    assert (model.layer.weight - before).abs().median().item() == pytest.approx(1e-5, rel=0.1)


@pytest.mark.gpu
@on_a_gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("model", benched())
def test_the_predicted_peak_is_the_gpus_within_a_tenth(model, precision):
    pytest.importorskip("transformers")
    device = torch.device("cuda")
    batch = fitting_batch(model, "full", device)
    result = measure(BenchCase(model, precision, "eager", "full"), batch=batch, device=device, seconds=0.1)
    assert result.outcome == "measured", result.message
    assert result.predicted_bytes == pytest.approx(result.peak_bytes, rel=0.1)
