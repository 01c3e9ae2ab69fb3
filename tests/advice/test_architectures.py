"""Advice on architectures that nobody here wrote: no crash, and what it claims is true when run again."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._pytree import tree_leaves

from amp_lessons import advise
from amp_lessons.advice.subject import Training
from amp_lessons.autocast import find_islands, in_fp32, region
from amp_lessons.autocast.cuda_on_cpu import ProductsInFp32
from amp_lessons.autocast.islands.replay import same_draws
from tests.advice import architectures

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _seeded():
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)


@pytest.mark.few
@pytest.mark.parametrize("make", architectures.ALL, ids=lambda make: make.__name__)
def test_advice_on(make):
    model, batch, *loss = make(transformers)
    advice = advise(model, batch, *loss, gpu="T4", steps=2, seconds=3)
    assert advice.verdict[0].text.startswith("On the T4")
    assert advice.ledger is not None
    assert advice.ledger.rows
    for dtype, islands in advice.islands.items():
        if islands.found:
            assert_islands(Training(model, *loss or [None]), batch, islands.names, dtype)
    if advice.memory:
        parameters = sum(each.nbytes for each in model.parameters())
        assert all(each.parameter_bytes == parameters for each in advice.memory.values())
    for found in advice.largest_batch.values():
        assert found.peak_bytes[found.batch] <= 14.56 * 2**30
    text = str(advice)
    for claim in advice.verdict:
        assert claim.because
        assert claim.label in ("measured", "computed")
        assert f"[{claim.label}]" in text


@pytest.mark.few
@pytest.mark.parametrize(
    ("make", "name", "names"),
    [
        (
            architectures.bert,
            "bert.encoder.layer.1.output.dense",
            ("model.bert.encoder.layer.1.output.dense",),
        ),
        (architectures.gpt2, "transformer.h.0.mlp.c_proj", ("model.transformer.h.0.mlp.c_proj",)),
        (architectures.vit, "vit.layernorm", None),
        (architectures.resnet, "resnet.encoder.stages.1.layers.0.layer.1.convolution", None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_island_that_is_named_is_one(make, name, names):
    """Weights so large that one module's result exceeds fp16, as outliers of real models do."""
    model, batch, *loss = make(transformers)
    with torch.no_grad():
        model.get_submodule(name).weight.mul_(1e8)
    training = Training(model, *loss or [None])
    found = find_islands(training, batch)
    assert found.names
    assert names is None or set(names) <= set(found.names)
    assert_islands(training, batch, found.names, torch.float16)


def assert_islands(training, batch, names, dtype):
    """With all of the islands the loss is that of fp32; without any one of them something is not finite."""
    expected = run(training, batch, None, ())
    assert run(training, batch, dtype, names)[0] == pytest.approx(expected[0], rel=0.05)
    for name in names:
        without = run(training, batch, dtype, [each for each in names if each != name])
        assert without[1] or not math.isclose(without[0], expected[0], rel_tol=0.01), name


@torch.no_grad()
def run(training, batch, dtype, islands):
    """Return the loss, and whether any module returned a number that is not finite."""
    broken = []

    def look(module, args, output):
        found = [each for each in tree_leaves(output) if torch.is_tensor(each)]
        broken.extend(module for each in found if each.is_floating_point() and not each.isfinite().all())

    handles = [module.register_forward_hook(look) for module in training.modules()]
    try:
        with same_draws(), ProductsInFp32(torch.float16), in_fp32(training, islands), region("cuda", dtype):
            return float(training(batch)), bool(broken)
    finally:
        for handle in handles:
            handle.remove()
