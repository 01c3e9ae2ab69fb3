"""The calculator against the predictions it is made of, and what it says to questions without an answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from amp_lessons.course.bench import calculator
from amp_lessons.course.bench.calculator import SUBJECTS, Subject, ask, largest_batch, own_subject, predict
from amp_lessons.course.bench.workloads import WORKLOADS
from amp_lessons.course.material import models
from amp_lessons.measure import GPUS, OPTIMIZERS, predict_memory

pytestmark = pytest.mark.slow

SMALL = [name for name in SUBJECTS if name not in WORKLOADS]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
        return self.layer(x) * (1 if weight is None else weight)


def test_every_workload_and_the_lessons_models_can_be_asked_about() -> None:
    assert set(WORKLOADS) < set(SUBJECTS)
    assert len(SMALL) == 3


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_small_models_need_what_is_predicted_for_them(name: str, precision: str) -> None:
    inputs = {
        "the lessons' perceptron": torch.rand(4, 64),
        "the lessons' conv net": torch.rand(4, 16**2),
        "the lessons' transformer block": torch.rand(4, 16, 32),
    }
    model = {
        "the lessons' perceptron": models.digits_classifier,
        "the lessons' conv net": models.convolutional_classifier,
        "the lessons' transformer block": models.transformer_block,
    }[name]()
    expected = predict_memory(model, inputs[name], precision_name=precision, optimizer=torch.optim.AdamW)
    assert predict(ask(SUBJECTS[name], "4", "16", "AdamW", precision)).at_peak == expected.at_peak


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_is_that_of_the_question(optimizer: str) -> None:
    state = predict(ask(SUBJECTS["the lessons' perceptron"], 2, 1, optimizer, "fp32")).optimizer_bytes
    weights = sum(p.nbytes for p in models.digits_classifier().parameters())
    assert state == {"AdamW": 2, "SGD with momentum": 1, "SGD": 0}[optimizer] * weights


@pytest.mark.parametrize(("batch", "size"), [("0", "8"), ("-1", "8"), ("abc", "8"), ("1e9", "8"), ("8", "0")])
def test_a_number_that_cannot_be_used_is_named(batch: str, size: str) -> None:
    wrong = "image side" if size == "0" else "batch"
    with pytest.raises(ValueError, match=f"The {wrong} is a whole number from 1 to"):
        ask(SUBJECTS["the lessons' conv net"], batch, size, "SGD", "fp32")


def test_where_there_is_one_size_whatever_stands_there_does_not_matter() -> None:
    assert ask(SUBJECTS["the lessons' perceptron"], 1, "abc", "SGD", "fp32").size == models.PIXELS


def test_the_largest_batch_is_the_last_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = GPUS["T4"].__class__("tiny", 2**29 + 10**7, 1.0, {}, "")  # 10 MB beside the context
    monkeypatch.setitem(calculator.GPUS, "tiny", tiny)
    question = ask(SUBJECTS["the lessons' transformer block"], 1, 32, "SGD", "fp16")
    calls: list[int] = []
    found = largest_batch(question, "tiny", lambda: calls.append(1))

    def peak(batch: int) -> int:
        return predict(ask(question.subject, batch, 32, "SGD", "fp16")).peak_bytes

    assert peak(found.batch) <= 10**7 < peak(found.batch + 1)
    assert len(calls) == 2 < len(found.tried) - 1  # what lies between two recordings is read off them


def test_what_is_raised_before_a_prediction_ends_the_search() -> None:
    question = ask(SUBJECTS["the lessons' perceptron"], 1, 1, "SGD", "fp32")

    class EnoughError(Exception):
        pass

    def enough() -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        largest_batch(question, "T4", enough)


@pytest.mark.thorough
def test_threads_may_ask_at_the_same_time() -> None:
    subject = SUBJECTS["the lessons' transformer block"]
    questions = [ask(subject, batch, 16, "SGD", "fp16") for batch in range(40, 52)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(predict, questions))
    predict.cache_clear()
    assert together == [predict(question) for question in questions]


@pytest.mark.parametrize(
    "inputs",
    [
        torch.rand(3, 16),
        (torch.rand(3, 16), torch.rand(3, 1)),
        {"x": torch.rand(3, 16), "weight": torch.tensor(2.0)},
        lambda batch: torch.rand(batch, 16),
    ],
)
def test_a_module_of_ones_own_takes_any_number_of_items(inputs: Any) -> None:
    subject = own_subject(Net(), inputs)
    assert subject.batch == (8 if callable(inputs) else 3)
    for batch in (1, 5):
        found = predict(ask(subject, batch, 1, "AdamW", "fp16"))
        values = {"x": torch.rand(batch, 16)}
        if not callable(inputs) and not isinstance(inputs, torch.Tensor):
            values["weight"] = torch.rand(batch, 1) if isinstance(inputs, tuple) else torch.tensor(2.0)
        assert found.at_peak == predict_memory(Net(), precision_name="fp16", **values).at_peak


def test_a_tensor_that_does_not_count_items_keeps_its_shape() -> None:
    weight = torch.rand(8)  # one number per output, whatever the batch
    subject = own_subject(Net(), (torch.rand(3, 16), weight))
    assert subject.batch == 3
    expected = predict_memory(Net(), torch.rand(5, 16), weight, precision_name="fp16")
    assert predict(ask(subject, 5, 1, "AdamW", "fp16")).at_peak == expected.at_peak


def test_inputs_without_a_tensor_are_refused() -> None:
    with pytest.raises(TypeError, match="inputs are a tensor, a tuple or a dict of tensors, or a function"):
        own_subject(Net(), [1, 2])
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got int"):
        own_subject(3, torch.rand(1))  # type: ignore[arg-type]


class TestWithTransformers:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("transformers")

    def test_a_published_model_needs_what_is_predicted_for_it(self) -> None:
        from amp_lessons.course.bench.cases import predicted_bytes

        question = ask(SUBJECTS["GPT-2"], 2, 1024, "AdamW", "fp16")
        assert predict(question).peak_bytes == predicted_bytes("GPT-2", "full", 2, "fp16", "cuda")

    def test_a_shorter_sequence_and_a_smaller_image_need_less(self) -> None:
        def saved(subject: Subject, size: int) -> int:
            return sum(predict(ask(subject, 1, size, "SGD", "fp32")).saved_bytes.values())

        assert saved(SUBJECTS["GPT-2"], 256) < saved(SUBJECTS["GPT-2"], 512) / 1.9
        assert saved(SUBJECTS["ViT-Base/16"], 96) < saved(SUBJECTS["ViT-Base/16"], 224) / 4

    def test_a_sequence_beyond_the_models_positions_is_refused(self) -> None:
        with pytest.raises(ValueError, match="GPT-2 knows 1,024 positions"):
            predict(ask(SUBJECTS["GPT-2"], 1, 1025, "SGD", "fp32"))


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "context", "layers", "width"),
    [("GPT-2", 1024, 12, 768), ("GPT-2 XL", "512", 48, 1600), ("Llama 3 8B", 8192, 32, 1024)],
)
def test_the_cache_of_published_models_is_that_of_their_tables(
    name: str, context: str | int, layers: int, width: int
) -> None:
    pytest.importorskip("transformers")
    found = calculator.decoding(calculator.DECODERS[name], context)
    assert found.cached == int(context) * 2 * layers * width


def test_what_decoding_cannot_be_asked_gets_a_sentence() -> None:
    pytest.importorskip("transformers")
    gpt2 = calculator.DECODERS["GPT-2"]
    with pytest.raises(ValueError, match="The context is a whole number"):
        calculator.decoding(gpt2, "long")
    with pytest.raises(calculator.CannotTellError, match="knows 1,024 positions"):
        calculator.decoding(gpt2, 2048)
    with pytest.raises(calculator.CannotTellError, match=r"BERT-Base: .* writes no text"):
        calculator.decoding(SUBJECTS["BERT-Base"])
