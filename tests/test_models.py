"""The networks of the lessons: their shapes, and that a seed is all their weights depend on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons.models import SimpleModel, denoiser, digits_classifier, seeded


@pytest.mark.parametrize("build", [digits_classifier, denoiser])
def test_a_seed_fixes_the_weights_and_the_global_generator_is_left_alone(build: type[nn.Module]) -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = build(seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(7)
    again, other = build(seed=1), build(seed=2)
    for a, b, c in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)


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


def test_the_classifier_has_the_number_of_parameters_that_the_lessons_quote() -> None:
    assert sum(p.numel() for p in digits_classifier().parameters()) == 85_002
