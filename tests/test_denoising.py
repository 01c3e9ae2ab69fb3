"""The experiment: it fails in fp16 without loss scaling, is cured by it, and is a fair comparison."""

from __future__ import annotations

import pytest

from amp_lessons.denoising import VARIANTS, DenoisingRun, Variant, compare_denoisers, train_denoiser


@pytest.fixture(scope="module", params=[0, 1], ids=lambda seed: f"seed {seed}")
def runs(request: pytest.FixtureRequest) -> dict[Variant, DenoisingRun]:
    return compare_denoisers(seed=request.param)


def test_without_scaling_the_picture_stays_poor_and_scaling_cures_it(
    runs: dict[Variant, DenoisingRun],
) -> None:
    errors = {variant: run.test_reconstruction_error for variant, run in runs.items()}
    assert errors["fp16"] > 1.5 * errors["fp32"]
    assert errors["fp16 with GradScaler"] == pytest.approx(errors["fp32"], rel=0.03)


def test_without_scaling_most_gradients_of_the_decoder_are_zero(runs: dict[Variant, DenoisingRun]) -> None:
    zeros = {variant: run.zero_gradient_fraction for variant, run in runs.items()}
    assert zeros["fp16"] > 0.8
    assert zeros["fp16 with GradScaler"] == pytest.approx(zeros["fp32"], abs=0.05)  # those are truly zero


def test_the_reading_shows_nothing_of_it(runs: dict[Variant, DenoisingRun]) -> None:
    accuracies = [run.test_accuracy for run in runs.values()]
    assert min(accuracies) > 0.8
    assert max(accuracies) - min(accuracies) < 0.03


def test_every_variant_starts_from_the_same_weights_batches_and_noise(
    runs: dict[Variant, DenoisingRun],
) -> None:
    first = [run.reconstruction_losses[0] for run in runs.values()]
    assert first == pytest.approx([first[0]] * 3, rel=1e-2)  # equal but for the rounding of fp16
    assert [len(run.reconstruction_losses) for run in runs.values()] == [300] * 3


def test_a_run_can_be_repeated_and_a_seed_matters() -> None:
    runs = [train_denoiser("fp32", seed=seed, steps=3) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_with_weight_one_fp16_needs_no_scaling_here() -> None:
    fp32, fp16 = (train_denoiser(v, reconstruction_weight=1.0, steps=60) for v in ("fp32", "fp16"))
    assert fp16.test_reconstruction_error == pytest.approx(fp32.test_reconstruction_error, rel=0.03)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="variant is one of"):
        train_denoiser("bf16")  # type: ignore[arg-type]


def test_the_variants_are_the_three_columns_of_the_lesson() -> None:
    assert VARIANTS == ("fp32", "fp16", "fp16 with GradScaler")
