"""The digits: real, complete, split once, and the same on every call."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from amp_lessons.course.material.data import batches, digits, with_noise


def rows(images: torch.Tensor, labels: torch.Tensor) -> list[tuple[float, ...]]:
    return sorted((*image, label) for image, label in zip(images.tolist(), labels.tolist(), strict=True))


def test_every_digit_of_scikit_learn_is_in_exactly_one_half() -> None:
    split, original = digits(), load_digits()
    images = torch.cat([split.train.images, split.test.images])
    labels = torch.cat([split.train.labels, split.test.labels])
    expected = torch.tensor(original.data, dtype=torch.float32) / 16
    assert rows(images, labels) == rows(expected, torch.tensor(original.target))
    assert (len(split.train), len(split.test)) == (1438, 359)
    assert (images.min(), images.max()) == (0, 1)


def test_the_halves_are_shuffled_but_always_alike() -> None:
    first, again = digits(), digits()
    assert torch.equal(first.train.images, again.train.images)
    assert set(first.test.labels.tolist()) == set(range(10))
    first.train.images.zero_()
    assert digits().train.images.any()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, 2.0, 1e-9])
def test_an_empty_half_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="test_fraction"):
        digits(fraction)
    with pytest.raises(ValueError, match="batch_size"):
        batches(digits().train, 0)


def test_batches_hold_every_example_once_with_its_label() -> None:
    train = digits().train
    loader = batches(train, 64, seed=3)
    assert [len(labels) for _, labels in loader] == [64] * 22 + [30]
    images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
    assert rows(images, labels) == rows(train.images, train.labels)


def test_batches_depend_on_the_seed_and_on_nothing_else() -> None:
    train = digits().train
    torch.manual_seed(0)
    first = batches(train, 64, seed=1)
    state = torch.get_rng_state()
    torch.manual_seed(5)
    assert torch.equal(first[0][0], batches(train, 64, seed=1)[0][0])
    assert not torch.equal(first[0][0], batches(train, 64, seed=2)[0][0])
    torch.manual_seed(0)
    batches(train, 64)
    assert torch.equal(torch.get_rng_state(), state)


def test_noise_has_the_size_asked_for_and_depends_on_the_seed() -> None:
    clean = torch.zeros(2000, 64)
    noisy = with_noise(clean, 0.5, seed=1)
    assert noisy.std().item() == pytest.approx(0.5, rel=0.02)
    assert torch.equal(noisy, with_noise(clean, 0.5, seed=1))
    assert not torch.equal(noisy, with_noise(clean, 0.5, seed=2))
    assert not clean.any()
