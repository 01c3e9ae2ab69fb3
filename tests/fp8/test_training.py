"""Models train by the recipes: a character model, against the same in fp32."""

from functools import cache

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.course.material import charlm, models
from amp_lessons.formats import FORMATS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

EIGHT_BITS = [name for name, recipe in fp8.RECIPES.items() if recipe.bits == 8]
UNSCALED = (
    fp8.RECIPES["tensorwise"].with_casts(rule="none").with_casts("gradient", element=FORMATS["fp8_e4m3"])
)
STEPS, LAST = 100, 20


@cache
def characters():
    text = charlm.python_help_text()
    vocabulary = charlm.Vocabulary.of(text)
    return vocabulary, list(charlm.CharacterBatches(vocabulary.encode(text), batches=STEPS))


def train_characters(recipe):
    """Train, and return the mean loss of the last steps."""
    vocabulary, batches = characters()
    model = models.seeded(lambda: charlm.CharacterModel(len(vocabulary)))
    if recipe is not None:
        fp8.convert(model, recipe, keep=())
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    losses = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for inputs, targets in batches:
            loss = charlm.next_character_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return sum(losses[-LAST:]) / LAST


@pytest.fixture(scope="module")
def in_fp32(one_thread):
    return train_characters(None)


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", EIGHT_BITS)
def test_eight_bits_end_within_five_percent_of_fp32(recipe, in_fp32):
    assert train_characters(recipe) == pytest.approx(in_fp32, rel=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("recipe", ["mxfp4", "nvfp4"])
def test_four_bits_train_a_character_model(recipe, in_fp32):
    assert train_characters(recipe) == pytest.approx(in_fp32, rel=0.1)


def test_without_a_scale_the_same_model_fails(in_fp32):
    assert train_characters(UNSCALED) > 1.5 * in_fp32
