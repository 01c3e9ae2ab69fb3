"""The calculator against the predictions it is made of, and what it says to questions without an answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from amp_lessons.course.bench import calculator
from amp_lessons.course.bench.calculator import SUBJECTS, ask, largest_batch, own_subject, predict
from amp_lessons.course.bench.cases import predicted_bytes
from amp_lessons.course.bench.workloads import WORKLOADS
from amp_lessons.course.material import models
from amp_lessons.measure import GPUS, OPTIMIZERS, predict_memory

pytestmark = pytest.mark.slow

# The lessons' small models, and four items of size 16 for each.
SMALL = {
    "the lessons' perceptron": (models.digits_classifier, (4, 64)),
    "the lessons' conv net": (models.convolutional_classifier, (4, 16**2)),
    "the lessons' transformer block": (models.transformer_block, (4, 16, 32)),
}
PERCEPTRON, CONV_NET, BLOCK = (SUBJECTS[name] for name in SMALL)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x, weight=None):
        return self.layer(x) * (1 if weight is None else weight)


def test_every_workload_and_the_lessons_models_can_be_asked_about():
    assert {*WORKLOADS, *SMALL} == set(SUBJECTS)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_small_models_need_what_is_predicted_for_them(name, precision):
    make, shape = SMALL[name]
    adam = torch.optim.AdamW
    expected = predict_memory(make(), torch.rand(shape), precision_name=precision, optimizer=adam)
    assert predict(ask(SUBJECTS[name], "4", "16", "AdamW", precision)).at_peak == expected.at_peak


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_optimizer_is_that_of_the_question(optimizer):
    state = predict(ask(PERCEPTRON, 2, 1, optimizer, "fp32")).optimizer_bytes
    weights = sum(p.nbytes for p in models.digits_classifier().parameters())
    assert state == {"AdamW": 2, "SGD with momentum": 1, "SGD": 0}[optimizer] * weights


@pytest.mark.parametrize(("batch", "size"), [("0", "8"), ("-1", "8"), ("abc", "8"), ("1e9", "8"), ("8", "0")])
def test_a_number_that_cannot_be_used_is_named(batch, size):
    wrong = "image side" if size == "0" else "batch"
    with pytest.raises(ValueError, match=f"The {wrong} is a whole number from 1 to"):
        ask(CONV_NET, batch, size, "SGD", "fp32")
    assert ask(PERCEPTRON, 1, "abc", "SGD", "fp32").size == models.PIXELS, "it has only one"


def test_the_largest_batch_is_the_last_that_fits(monkeypatch):
    tiny = GPUS["T4"].__class__("tiny", 2**29 + 10**7, 1.0, {}, "")  # 10 MB beside the context
    monkeypatch.setitem(calculator.GPUS, "tiny", tiny)
    question = ask(BLOCK, 1, 32, "SGD", "fp16")
    calls = []
    found = largest_batch(question, "tiny", lambda: calls.append(1))

    def peak(batch):
        return predict(ask(question.subject, batch, 32, "SGD", "fp16")).peak_bytes

    assert peak(found.batch) <= 10**7 < peak(found.batch + 1)
    assert len(calls) == 2 < len(found.tried) - 1  # what lies between two recordings is read off them


def test_what_is_raised_before_a_prediction_ends_the_search():
    def enough():
        raise InterruptedError

    with pytest.raises(InterruptedError):
        largest_batch(ask(PERCEPTRON, 1, 1, "SGD", "fp32"), "T4", enough)


@pytest.mark.thorough
def test_threads_may_ask_at_the_same_time():
    questions = [ask(BLOCK, batch, 16, "SGD", "fp16") for batch in range(40, 52)]
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
def test_a_module_of_ones_own_takes_any_number_of_items(inputs):
    subject = own_subject(Net(), inputs)
    assert subject.batch == (8 if callable(inputs) else 3)
    for batch in (1, 5):
        found = predict(ask(subject, batch, 1, "AdamW", "fp16"))
        values = {"x": torch.rand(batch, 16)}
        if not callable(inputs) and not isinstance(inputs, torch.Tensor):
            values["weight"] = torch.rand(batch, 1) if isinstance(inputs, tuple) else torch.tensor(2.0)
        assert found.at_peak == predict_memory(Net(), precision_name="fp16", **values).at_peak


def test_a_tensor_that_does_not_count_items_keeps_its_shape():
    weight = torch.rand(8)  # one number per output, whatever the batch
    subject = own_subject(Net(), (torch.rand(3, 16), weight))
    assert subject.batch == 3
    expected = predict_memory(Net(), torch.rand(5, 16), weight, precision_name="fp16")
    assert predict(ask(subject, 5, 1, "AdamW", "fp16")).at_peak == expected.at_peak


def test_inputs_without_a_tensor_are_refused():
    with pytest.raises(TypeError, match="inputs are a tensor, a tuple or a dict of tensors, or a function"):
        own_subject(Net(), [1, 2])
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got int"):
        own_subject(3, torch.rand(1))


@pytest.fixture
def gpt2():
    pytest.importorskip("transformers")
    return SUBJECTS["GPT-2"]


def test_a_published_model_needs_what_is_predicted_for_it(gpt2):
    found = predict(ask(gpt2, 2, 1024, "AdamW", "fp16"))
    assert found.peak_bytes == predicted_bytes("GPT-2", "full", 2, "fp16", "cuda")
    with pytest.raises(ValueError, match="GPT-2 knows 1,024 positions"):
        predict(ask(gpt2, 1, 1025, "SGD", "fp32"))


def test_a_shorter_sequence_and_a_smaller_image_need_less(gpt2):
    def saved(subject, size):
        return sum(predict(ask(subject, 1, size, "SGD", "fp32")).saved_bytes.values())

    assert saved(gpt2, 256) < saved(gpt2, 512) / 1.9
    assert saved(SUBJECTS["ViT-Base/16"], 96) < saved(SUBJECTS["ViT-Base/16"], 224) / 4


@pytest.mark.few
@pytest.mark.usefixtures("gpt2")
@pytest.mark.parametrize(
    ("name", "context", "layers", "width"),
    [("GPT-2", 1024, 12, 768), ("GPT-2 XL", "512", 48, 1600), ("Llama 3 8B", 8192, 32, 1024)],
)
def test_the_cache_of_published_models_is_that_of_their_tables(name, context, layers, width):
    found = calculator.decoding(calculator.DECODERS[name], context)
    assert found.cached == int(context) * 2 * layers * width


@pytest.mark.parametrize(
    ("name", "context", "said"),
    [
        ("GPT-2", "long", "The context is a whole number"),
        ("GPT-2", 2048, "knows 1,024 positions"),
        ("BERT-Base", None, "BERT-Base: .* writes no text"),
    ],
)
@pytest.mark.usefixtures("gpt2")
def test_what_decoding_cannot_be_asked_gets_a_sentence(name, context, said):
    with pytest.raises(ValueError, match=said):
        calculator.decoding(SUBJECTS[name], context)
