"""The peak of a training step as it is predicted without a GPU, and what CUDA's allocator says it was."""

from __future__ import annotations

import torch

from amp_lessons.bench import SOURCE_MODELS, cases
from amp_lessons.measure import precisions_on
from tools.gpu.found import Agreement, Found, NotPossibleError, Place, needed

TOLERANCE = 0.1
_REASON = "what kernels allocate inside themselves is not predicted"
_SECONDS = 0.1  # the time is `bench`'s business


def parts(place: Place) -> tuple[str, ...]:
    """Name every precision of the models about which a source makes a claim."""
    needed("transformers")
    return tuple(f"{model} {name}" for model in SOURCE_MODELS for name in precisions_on(place.device))


def run(name: str, place: Place) -> Found:
    """Predict one, and take the step."""
    model, _, precision = name.rpartition(" ")
    device = torch.device(place.device)
    batch = cases.fitting_batch(model, place.preset, device)
    case = cases.Case(model, precision, "eager", place.preset)
    result = cases.measure(case, batch=batch, device=device, seconds=_SECONDS)
    if result.outcome in ("does not fit", "not supported"):
        raise NotPossibleError(result.message)
    if result.outcome == "failed" or result.predicted_bytes is None:
        raise RuntimeError(result.message)
    measured = result.peak_bytes if result.peak_bytes is not None else result.outcome
    peak = Agreement(f"{name}, batch {batch}", result.predicted_bytes, measured, _REASON, TOLERANCE, "bytes")
    return Found(agreements=(peak,))
