"""The networks of the lessons: their shapes, and that a seed is all their weights depend on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons.course.material.models import (
    SimpleModel,
    convolutional_classifier,
    denoiser,
    digits_classifier,
    seeded,
    transformer_block,
)


@pytest.mark.parametrize("build", [digits_classifier, denoiser, convolutional_classifier, transformer_block])
def test_a_seed_fixes_the_weights_and_the_global_generator_is_left_alone(build) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = build(seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    again, other = (build(seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if name.endswith("0.weight"))


def test_a_seeded_model_is_what_pytorch_makes_with_that_seed() -> None:
    torch.manual_seed(3)
    expected = nn.Linear(4, 4).weight
    assert torch.equal(seeded(lambda: nn.Linear(4, 4), seed=3).weight, expected)


def test_the_generator_is_restored_when_building_fails() -> None:
    state = torch.get_rng_state()
    with pytest.raises(TypeError):
        seeded(lambda: nn.Linear("four", 4))  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), state)


def test_shapes() -> None:
    images = torch.rand(5, 64)
    assert SimpleModel(64, 16, 3)(images).shape == (5, 3)
    assert digits_classifier()(images).shape == (5, 10)
    assert denoiser()(images).shape == (5, 64)
    assert convolutional_classifier()(images).shape == (5, 10)
    assert transformer_block()(torch.rand(2, 7, 32)).shape == (2, 7, 32)


def test_the_transformer_block_is_pytorchs_own_layer_with_the_same_weights() -> None:
    block, x = transformer_block(width=16, heads=2), torch.randn(3, 5, 16)
    layer = nn.TransformerEncoderLayer(16, 2, 64, 0.0, nn.GELU(), batch_first=True, norm_first=True)
    ours, names = (
        block.state_dict(),
        {
            "norm1.": "attention_norm.",
            "norm2.": "perceptron_norm.",
            "self_attn.in_proj_": "queries_keys_values.",
            "self_attn.out_proj.": "attention_output.",
            "linear1.": "perceptron.0.",
            "linear2.": "perceptron.2.",
        },
    )
    parts = ("weight", "bias")
    weights = {f"{name}{part}": ours[f"{own}{part}"] for name, own in names.items() for part in parts}
    layer.load_state_dict(weights)
    torch.testing.assert_close(block(x), layer(x))


def test_the_classifier_has_the_number_of_parameters_that_the_lessons_quote() -> None:
    assert sum(p.numel() for p in digits_classifier().parameters()) == 85_002
