"""What draws digits in lesson 07, against independent arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from amp_lessons import generation


def test_the_distance_is_that_of_two_normal_distributions():
    a, b = torch.randn(400, 6) @ torch.randn(6, 6), torch.randn(300, 6) + 2
    first, second = np.cov(a.T.numpy()), np.cov(b.T.numpy())
    root = scipy.linalg.sqrtm(first @ second).real
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum().item() + np.trace(first + second - 2 * root)
    assert generation.frechet_distance(a, b) == pytest.approx(expected, rel=1e-4)
    assert generation.frechet_distance(a, a) == pytest.approx(0, abs=1e-4)


def test_the_signal_falls_from_nearly_all_to_nearly_nothing():
    left = generation.signal_left()
    assert left.shape == (generation.TIMES,)
    assert left[0] == pytest.approx(0.9999)
    assert left[-1] < 1e-4
    assert (left.diff() < 0).all()


def test_who_knows_the_noise_draws_the_image():
    """With a perfect predictor for one image, DDIM ends at that image."""
    image, left = torch.rand(64) * 2 - 1, generation.signal_left()

    def predict(noisy, times):
        share = left[times.long()][:, None]
        return (noisy - share.sqrt() * image) / (1 - share).sqrt()

    drawn = generation.draw(predict, 3, steps=10)
    torch.testing.assert_close(drawn, ((image + 1) / 2).expand(3, 64), rtol=0, atol=1e-3)


def test_a_seed_fixes_what_is_drawn():
    first, again, other = (
        generation.draw(lambda noisy, times: 0 * noisy, 2, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_shapes():
    net = generation.noise_predictor(hidden=16)
    channels = generation.time_channels(torch.arange(5.0))
    assert channels.shape == (5, 64)
    assert net(torch.rand(5, 64), channels).shape == (5, 64)
