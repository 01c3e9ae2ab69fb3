"""The character model and its text."""

from __future__ import annotations

import math

import pytest
import torch

from amp_lessons import training
from amp_lessons.course.material import charlm


@pytest.fixture(scope="module")
def codes():
    text = charlm.python_help_text()
    return charlm.Vocabulary.of(text).encode(text)


def test_text_comes_with_python():
    text = charlm.python_help_text()
    assert len(text) > 300_000
    assert "assert" in text


def test_vocabulary_round_trip():
    vocabulary = charlm.Vocabulary.of("hello world")
    assert len(vocabulary) == 8
    assert vocabulary.decode(vocabulary.encode("low roll")) == "low roll"
    with pytest.raises(ValueError, match="'x'"):
        vocabulary.encode("x")


def test_targets_are_the_inputs_one_character_later(codes):
    batches = charlm.CharacterBatches(codes, context=12, batch_size=3, batches=4)
    assert len(batches) == 4
    for inputs, targets in batches:
        assert inputs.shape == targets.shape == (3, 12)
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches, batches, strict=True)), "every epoch the same"
    with pytest.raises(ValueError, match="too short"):
        charlm.CharacterBatches(codes[:5], context=12)


def test_model_does_not_look_ahead():
    model = charlm.CharacterModel(10, context=8).eval()
    indices = torch.randint(10, (2, 8), generator=torch.Generator().manual_seed(0))
    changed = indices.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 10
    with torch.no_grad():
        before, after = model(indices), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])
    with pytest.raises(ValueError, match="context"):
        model(torch.zeros(1, 9, dtype=torch.long))


def test_loss_of_a_fresh_model_is_that_of_guessing():
    torch.manual_seed(0)
    model = charlm.CharacterModel(50)
    inputs = torch.randint(50, (8, 32))
    assert float(charlm.next_character_loss(model(inputs), inputs)) == pytest.approx(math.log(50), rel=0.15)


def test_it_learns_alike_in_every_precision(codes):
    batches = charlm.CharacterBatches(codes, batches=10)
    comparison = training.compare(
        lambda: charlm.CharacterModel(int(codes.max()) + 1),
        batches,
        charlm.next_character_loss,
        2,
        dtypes=(None, torch.float16, torch.bfloat16),
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        device="cpu",
    )
    for history in comparison.runs.values():
        assert history.losses[1] < 0.9 * history.losses[0]
    assert comparison.largest_difference < 0.03  # the text is Python's own help, another one in each version
