"""Ask every instrument of the course about a model, and say what follows."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from amp_lessons.advice.advice import Advice
from amp_lessons.advice.gathering import gathered
from amp_lessons.advice.sections import sections_of
from amp_lessons.advice.subject import Loss, subject_of
from amp_lessons.advice.twenty_steps import Optimizers, default_optimizer
from amp_lessons.advice.verdict import verdict
from amp_lessons.arguments import require, require_callable, require_number, require_whole
from amp_lessons.measure import GPUS

DEFAULT_GPU = "A100 SXM 40 GB"


def advise(
    model: nn.Module,
    batch: Any,
    loss: Loss | None = None,
    *,
    gpu: str = DEFAULT_GPU,
    optimizer: Optimizers = default_optimizer,
    steps: int = 20,
    seconds: float = 30.0,
) -> Advice:
    """Say whether to train ``model`` in mixed precision, in which dtype, and what to watch.

    ``batch`` is what a loader yields. With a ``loss``, a function of output and target, it is a pair of
    inputs and target: ``loss(model(inputs), target)``; what is no pair is both, as for an autoencoder.
    Without one, it holds the inputs alone, and the model computes its loss itself, as those of
    ``transformers`` do when they are given labels. Inputs in a dict are given by name, those in a tuple in
    order.

    ``gpu`` is one of ``measure.GPUS``; what needs it is computed. ``optimizer`` makes an optimizer of
    parameters; ``steps`` steps with it are audited, on a copy of the model in training mode; the model is
    left as it was. All of it takes about ``seconds``, and what there was no time for is said. What
    ``torch.compile`` makes of a model is not looked at.

    Raises ``CannotAdviseError`` for what cannot be trained at all, with the reason, and ``TypeError`` or
    ``ValueError`` for other arguments that make no sense.
    """
    require(gpu, str, "gpu", 'the name of a GPU such as "T4"')
    if gpu not in GPUS:
        raise ValueError(f"unknown gpu {gpu!r}; there are {', '.join(GPUS)}")
    require_callable(
        optimizer, "optimizer", "a function of parameters that makes one, such as torch.optim.AdamW"
    )
    require_whole(steps, "steps")
    require_number(seconds, "seconds", above=0)
    start = time.monotonic()
    with torch.compiler.set_stance("force_eager"):  # operations are followed one by one
        subject = subject_of(model, batch, loss)
        facts = gathered(subject, GPUS[gpu], optimizer=optimizer, steps=steps, start=start, seconds=seconds)
    return Advice(
        of=subject.name,
        gpu=gpu,
        dtype=facts.dtype,
        verdict=tuple(verdict(facts)),
        ledger=facts.ledger,
        islands=facts.islands,
        memory=facts.memory,
        largest_batch=facts.largest_batch,
        bounds=facts.bounds,
        timings=facts.timings,
        audit=facts.audit,
        sections=tuple(sections_of(facts)),
        not_done=tuple(facts.not_done),
    )
