"""The trainings of lesson 07 reach what the lesson says, and not with one seed alone."""

from __future__ import annotations

import copy

import pytest
import torch

from amp_lessons import generation, models, pretrained, residual
from tests.material.lesson07_cells import CELLS, names_of

pytestmark = pytest.mark.slow
needs_weights = pytest.mark.skipif(bool(pretrained.missing()), reason="needs the extra pretrained")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def vision():
    return names_of("vision-data", "vision-fit", "vision-accuracy")


@needs_weights
@pytest.mark.parametrize("seed", [1, 2])
def test_a_network_that_knows_one_sort_of_digits_learns_another_from_few(vision, seed):
    fit, accuracy, few = vision["fit"], vision["accuracy"], vision["few"]
    knowing = fit(residual.residual_net(seed=seed), vision["upright"].train, 90, lr=3e-3, seed=seed)
    tuned = accuracy(fit(copy.deepcopy(knowing), few, 30, seed=seed))
    mixed = accuracy(fit(copy.deepcopy(knowing), few, 30, dtype=torch.bfloat16, seed=seed))
    blank = [fit(residual.residual_net(seed=seed + 10), few, 30, lr=lr, seed=seed) for lr in (1e-3, 3e-3)]
    assert min(tuned, mixed) > 0.7
    assert abs(tuned - mixed) < 0.05
    assert max(map(accuracy, blank)) < tuned - 0.1


@pytest.fixture(scope="module")
def language():
    return names_of("language-data", "trunk-run", "trunk-once", "trunk-train", "trunk-loop", "trunk-score")


@needs_weights
@pytest.mark.parametrize("seed", [1, 2])
def test_the_encoder_names_packages_and_random_weights_name_fewer(language, seed):
    tuned, blank = language["upper"](), models.seeded(language["encoder"].Encoder, seed)
    language["finetune"](tuned, lr=3e-4, seed=seed)
    right = language["score"](tuned)
    assert right > 0.7
    for name in ("hidden", "test_hidden"):
        kind = name.removesuffix("hidden")
        language[f"random_{name}"] = language["lower"](
            blank, language[f"{kind}tokens"], language[f"{kind}mask"]
        )
    language["hidden"], kept = language["random_hidden"], language["hidden"]
    language["test_hidden"], kept_test = language["random_test_hidden"], language["test_hidden"]
    try:
        untaught = language["upper"](blank)
        language["finetune"](untaught, lr=3e-4, seed=seed)
        assert language["score"](untaught) < right - 0.15
    finally:
        language["hidden"], language["test_hidden"] = kept, kept_test


@needs_weights
def test_pure_bf16_stalls_at_a_small_rate_and_random_rounding_does_not(language):
    for cell in ("tuning-stochastic", "tuning-dice"):
        exec(CELLS[cell], language)
    scores = {}
    for name, net, options in (
        ("fp32", language["upper"](), {}),
        ("bf16", language["upper"]().bfloat16(), {}),
        ("at random", language["upper"]().bfloat16(), {"make": language["StochasticAdamW"]}),
    ):
        language["finetune"](net, lr=2e-5, seed=1, **options)
        scores[name] = language["score"](net)
    assert scores["bf16"] < 0.3 < scores["fp32"] - 0.05
    assert abs(scores["at random"] - scores["fp32"]) < 0.08


@pytest.mark.parametrize("seed", [1, 2])
def test_diffusion_draws_digits_unless_its_average_is_kept_in_bf16(seed):
    names = names_of("diffusion-loop", "diffusion-train", "diffusion-average", "diffusion-drawn")
    averages = names["train_diffusion"](seed=seed)
    distances = {name: names["distance"](names["drawn"](net.float())) for name, net in averages.items()}
    assert distances["fp32"] < 1 < 4 < distances["bf16"]


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_the_gan_gets_nearer_to_digits(dtype):
    names = names_of(
        "diffusion-loop", "diffusion-average", "diffusion-drawn", "gan-loop", "gan-step", "gan-faked"
    )
    drawn = names["faked"](names["train_gan"](dtype=dtype, seed=1))
    untrained = names["faked"](generation.generator(seed=1))
    assert names["distance"](drawn) < 5 < 8 < names["distance"](untrained)
