"""A training run that fails in fp16 without loss scaling, and is cured by it.

A network reads noisy digits and cleans their pictures: the loss is the cross-entropy of the reading plus a
small multiple of the mean squared error of the picture. Small weights on an auxiliary loss term are everyday
practice:

- capsule networks scale the reconstruction of MNIST digits by 0.0005 (Sabour et al. 2017, arXiv:1710.09829)
- PaLM adds an auxiliary z-loss with weight 10⁻⁴ (Chowdhery et al. 2022, arXiv:2204.02311)
- latent diffusion gives the KL term of its autoencoder a weight of about 10⁻⁶ (Rombach et al. 2022,
  arXiv:2112.10752)

Adam divides the size of a gradient out, so in fp32 a decoder that only such a term trains learns at full
speed. In fp16 the gradient of one pixel, 2 × weight × error / number of pixels in the batch, is below the
smallest fp16 number: it arrives as zero, and nothing can divide that out. The reading, trained by the large
term, looks perfect all along. With weight 1, the same happens where the mean runs over 10,000 times as many
pixels, as in dense prediction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from amp_lessons.data import Batch, batches, digits, with_noise
from amp_lessons.models import ReadingDenoiser, reading_denoiser
from amp_lessons.scaling.cycle import make_scaler

Variant = Literal["fp32", "fp16", "fp16 with GradScaler"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True)
class DenoisingRun:
    """What one training run leaves behind; losses are per step, and the reconstruction is not weighted.

    `zero_gradient_fraction` is the share of the decoder's gradient values, over all steps, that were exactly
    zero.
    """

    variant: Variant
    reading_losses: tuple[float, ...]
    reconstruction_losses: tuple[float, ...]
    zero_gradient_fraction: float
    test_accuracy: float
    test_reconstruction_error: float


def train_denoiser(
    variant: Variant,
    *,
    seed: int = 0,
    steps: int = 300,
    reconstruction_weight: float = 1e-4,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    device: torch.device | str = "cpu",
) -> DenoisingRun:
    """Train a `ReadingDenoiser` with Adam. A seed gives every variant the same weights, batches and noise.

    Raises ValueError for a variant that is not one of `VARIANTS`.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant is one of {', '.join(map(repr, VARIANTS))}, not {variant!r:.60}")
    device = torch.device(device)
    model = reading_denoiser(seed=seed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    scaler = make_scaler(device.type) if variant == "fp16 with GradScaler" else None
    reading_losses, reconstruction_losses, zero_fractions = [], [], []
    loader = batches(digits().train, batch_size, seed=seed, device=device)
    for step, (clean, labels) in enumerate(_repeated(loader, steps)):
        noisy = with_noise(clean, seed=seed * steps + step)
        with torch.autocast(device.type, torch.float16, enabled=variant != "fp32"):
            logits, cleaned = model(noisy)
            reading, reconstruction = cross_entropy(logits, labels), mse_loss(cleaned, clean)
            loss = reading + reconstruction_weight * reconstruction
        optimizer.zero_grad()
        _backward_and_step(loss, optimizer, scaler)
        reading_losses.append(reading.item())
        reconstruction_losses.append(reconstruction.item())
        zero_fractions.append(_zero_fraction(model.decoder))
    accuracy, error = _test(model, device)
    return DenoisingRun(
        variant=variant,
        reading_losses=tuple(reading_losses),
        reconstruction_losses=tuple(reconstruction_losses),
        zero_gradient_fraction=sum(zero_fractions) / steps,
        test_accuracy=accuracy,
        test_reconstruction_error=error,
    )


def compare_denoisers(
    *, seed: int = 0, steps: int = 300, device: torch.device | str = "cpu"
) -> dict[Variant, DenoisingRun]:
    """Train every variant from the same initial weights, on the same batches with the same noise."""
    return {variant: train_denoiser(variant, seed=seed, steps=steps, device=device) for variant in VARIANTS}


def _repeated(loader: list[Batch], steps: int) -> Iterator[Batch]:
    return islice(cycle(loader), steps)


def _backward_and_step(
    loss: Tensor, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler | None
) -> None:
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def _zero_fraction(module: nn.Module) -> float:
    gradients = torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])
    return float((gradients == 0).float().mean())


@torch.no_grad()
def _test(model: ReadingDenoiser, device: torch.device) -> tuple[float, float]:
    test = digits().test
    clean, labels = test.images.to(device), test.labels.to(device)
    logits, cleaned = model(with_noise(clean))
    return float((logits.argmax(dim=1) == labels).float().mean()), float(mse_loss(cleaned, clean))
