"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons.exercises.report import conduct
from amp_lessons.exercises.report.notes import cuda_replaced, fixed_device
from amp_lessons.exercises.report.results import Exercise, Finding, Verdict, passed
from amp_lessons.exercises.sources import source_of
from amp_lessons.exercises.two_optimizers import mistakes, testbed


def gan_step(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):  # type: ignore[no-untyped-def]
    """Train the discriminator once, then the generator once; return both losses as floats."""
    opt_d.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        fake = generator(noise)
        on_real, on_fake = discriminator(real), discriminator(fake.detach())
        d_loss = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
        d_loss = d_loss + F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
    scaler.scale(d_loss).backward()
    scaler.step(opt_d)

    opt_g.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        judged = discriminator(fake)
        g_loss = F.binary_cross_entropy_with_logits(judged, torch.ones_like(judged))
    scaler.scale(g_loss).backward()
    scaler.step(opt_g)
    scaler.update()
    return d_loss.item(), g_loss.item()


def _examine(attempt: Any) -> Verdict:
    finding = conduct.uncallable(attempt, "gan_step", *[None] * 7, device_type=None, dtype=None)
    if finding is not None:
        return Verdict((finding,))
    tapes = []
    for bench, poisoned in _sequences():
        tapes.append(bench.tape)
        for part in poisoned:
            call = bench.call(attempt, part)
            finding = conduct.not_attempted(call.outcome) or mistakes.first_mistake(call)
            if finding is not None:
                return Verdict((finding,))
    return Verdict((*_WHAT_HOLDS, *_remarks(tapes)))


def _sequences() -> list[tuple[testbed.Gan, tuple[str | None, ...]]]:
    """List the runs: a scale that changes after each step, so that order shows; bfloat16; overflows."""
    clean = (None, None, None)
    return [
        (testbed.Gan(torch.float16, seed=0, init_scale=8.0, growth_interval=1), clean),
        (testbed.Gan(torch.float16, seed=1, init_scale=8.0, growth_interval=1), clean),
        (testbed.Gan(torch.bfloat16, seed=2, init_scale=8.0, growth_interval=1), clean),
        (
            testbed.Gan(torch.float16, seed=3, init_scale=1024.0, growth_interval=1000),
            (None, "discriminator", None),
        ),
        (
            testbed.Gan(torch.float16, seed=4, init_scale=1024.0, growth_interval=1000),
            (None, "generator", None),
        ),
    ]


_WHAT_HOLDS = (
    passed("precision", "both networks ran under autocast in the dtype asked for, backward outside it"),
    passed("discriminator", "its updates are SGD on its own loss, whatever the scale did"),
    passed("generator", "its updates are SGD on its own loss, whatever the scale did"),
    passed("overflow", "an overflow in a network left its weights alone, and the scale was lowered"),
    passed("losses", "both losses are returned, unscaled"),
)


def _remarks(tapes: list[Any]) -> list[Finding]:
    hint = "write torch.autocast(device_type, …)"
    if any(tape.hard_coded for tape in tapes):
        return [cuda_replaced("device_type", "PyTorch would only warn and switch autocast off", hint)]
    spellings = sorted({spelling for tape in tapes for spelling in tape.deprecated})
    return [fixed_device(f"{name} names one device, whatever device_type says", hint) for name in spellings]


EXERCISE = Exercise(
    id="two_optimizers",
    title="Two optimizers, one scaler",
    lesson="04",
    difficulty=4,
    minutes=25,
    names=("gan_step",),
    task=(
        "Write one training step of a GAN in mixed precision. The discriminator's loss is `BCE(D(real), "
        "1) + BCE(D(fake), 0)`, the generator's is `BCE(D(fake), 1)`, with `fake = generator(noise)`. `BCE` "
        "is `F.binary_cross_entropy_with_logits`, against a tensor of ones or zeros. Both share the scaler "
        "that is passed in (it is disabled for bfloat16). Return `(discriminator loss, generator loss)` as "
        "floats."
    ),
    stub='''def gan_step(generator, discriminator, opt_g, opt_d, scaler, real, noise, *, device_type, dtype):
    """Train the discriminator once, then the generator once; return (d_loss, g_loss) as floats."""
    raise NotImplementedError
''',
    hints=(
        "Each loss is scaled and each optimizer stepped. When may the scale itself change, if gradients "
        "that were made with the old scale are still waiting for their step?",
        "One `scaler.update()` at the very end, or one after each network's complete cycle. For the "
        "discriminator's loss, cut the fake images from the generator's graph: it saves work and keeps "
        "foreign gradients out. For the generator's loss they must not be cut.",
        "zero `opt_d`; autocast: `D(real)`, `D(fake.detach())`, loss; `scale`, `backward`, "
        "`step(opt_d)`. Then zero `opt_g`; autocast: `D(fake)`, loss; `scale`, `backward`, "
        "`step(opt_g)`; `update` once.",
    ),
    explanation=(
        "`scaler.step` unscales by the scale of the moment, so `update`, which may change it, has to "
        "wait until every gradient made with the old scale has been applied. The generator's backward "
        "also fills the discriminator's gradients; `opt_d.zero_grad()` at the start of the next step "
        "throws them away. Skips are separate: an overflow in one network does not keep the other from "
        "stepping."
    ),
    answer=gan_step,
    answer_source=source_of(gan_step, imports="import torch\nimport torch.nn.functional as F\n"),
    examine=_examine,
)
