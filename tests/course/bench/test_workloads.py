"""The catalogue of models: the published sizes, and batches that give a loss."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.autocast import fake_tensors
from amp_lessons.course.bench import WORKLOADS, benched

pytestmark = pytest.mark.slow

pytest.importorskip("transformers")

# Parameters as published with the models; BERT's are those of both pre-training heads. Add a new model's.
PARAMETERS = {
    "ResNet-50": 25_557_032,
    "BERT-Large": 336_226_108,
    "GPT-2": 124_439_808,
    "EfficientNet-B7": 66_347_960,
    "GPT-2 medium": 354_823_168,
    "GPT-2 large": 774_030_080,
    "GPT-2 XL": 1_557_611_200,
    "BERT-Base": 110_106_428,
    "ViT-Base/16": 86_567_656,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_full_models_have_their_published_size_and_return_a_loss(name):
    workload = WORKLOADS[name]
    with fake_tensors():
        model = workload.build()
        inputs = workload.batch(model, 2)
        loss = model(**inputs).loss
    assert model.training
    assert _parameters(model) == PARAMETERS.get(name, "not listed above with its published size")
    assert all(tensor.shape[0] == 2 for tensor in inputs.values())
    assert loss.shape == ()
    with pytest.raises(ValueError, match=f"{name} has no size 'huge'; there are full"):
        workload.build("huge")


def _parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", benched())
def test_small_models_train(name):
    workload = WORKLOADS[name]
    torch.manual_seed(0)
    model = workload.build("small")
    loss = model(**workload.batch(model, 2, "small")).loss
    loss.backward()
    assert torch.isfinite(loss)
    with fake_tensors():
        full = workload.build()
    assert _parameters(model) < _parameters(full) / 20
    assert any(parameter.grad is not None for parameter in model.parameters())
