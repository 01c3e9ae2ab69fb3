"""Drills: fifty seconds each, drawn by a seed, with answers that the course's own rooms compute."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from amp_lessons import autocast, parallel
from amp_lessons._base.text.words import memory, power_of_two, short
from amp_lessons.autocast import Policy
from amp_lessons.course import clinic, quizzes
from amp_lessons.course.interview.bank import known
from amp_lessons.course.interview.whiteboard import policy_of
from amp_lessons.course.quizzes import Choice, Question
from amp_lessons.formats import FORMATS, FloatFormat, Representation, represent

SECONDS = 50
_CHOICES = 4

# What to ask autocast about: what models are made of, and their losses.
_PRODUCTS = ("matmul", "linear", "conv2d", "bmm", "addmm", "scaled_dot_product_attention")
_SUMS = ("softmax", "log_softmax", "layer_norm", "group_norm", "batch_norm", "sum", "cumsum", "norm", "mean")
_LOSSES = ("mse_loss", "l1_loss", "nll_loss", "binary_cross_entropy")
_OTHERS = ("exp", "log", "pow", "gelu", "relu", "sigmoid", "add", "dropout", "cat", "stack", "max_pool2d")
_OPERATIONS = (*_PRODUCTS, *_SUMS, *_LOSSES, *_OTHERS)
_ANSWERS: dict[Policy | None, str] = {
    Policy.LOWER_PRECISION: "autocast's 16-bit dtype, also from fp32 inputs",
    **dict.fromkeys(
        (Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE), "fp32, also from 16-bit inputs"
    ),
    Policy.PROMOTE: "the widest dtype among its inputs",
    Policy.BANNED: "none: autocast refuses it with an error",
    None: "that of its inputs: autocast leaves it alone",
}


@dataclass(frozen=True)
class Drill:
    """A question with four answers or so, to be answered in ``seconds``.

    ``curve`` is the training that it is about, if it is about one: ``clinic.loss_curve`` knows it by that id.
    """

    kind: str
    question: Question
    curve: str = ""
    seconds: int = SECONDS

    @property
    def right(self) -> int:
        """The place of the right answer, from 0."""
        return self.question.choices.index(self.question.answer)


def drill(seed: int, kind: str | None = None) -> Drill:
    """Draw a drill by ``seed``, of one of ``KINDS``. Raises ValueError for an unknown kind."""
    rng = random.Random(f"{seed} {kind}")
    (chosen,) = known(rng.choice(KINDS) if kind is None else kind, KINDS, "kind of drill")
    return _DRAWN[chosen](rng)


def drills(seed: int, number: int) -> Iterator[Drill]:
    """Yield so many drills, of each kind in turn."""
    first = random.Random(seed).randrange(len(KINDS))
    return (drill(1000 * seed + i, KINDS[(first + i) % len(KINDS)]) for i in range(number))


def score(right: int, in_time: int, asked: int) -> str:
    """Say how many answers were right, and how many of these came in time."""
    late = "" if in_time == right else f", {in_time} of them in time"
    return f"{right} of {asked} right{late or ' and in time'}."


def _cast(rng: random.Random) -> Drill:
    """Ask what becomes of a number where a format ends, where it begins, or where it skips integers."""
    target = FORMATS[rng.choice(("fp16", "bf16", "fp8_e4m3", "fp8_e5m2"))]
    place = rng.choice(("begins", "ends", "skips") if target.max < 1e30 else ("begins", "skips"))
    if place == "begins":
        return _cast_of_small(target, rng)
    if place == "ends":
        value = target.max + target.spacing(target.max) * rng.choice((-1, 0.25, 0.75, 2))
    else:
        value = float(2 ** (target.mantissa_bits + rng.choice((1, 2))) + rng.choice((1, 3, 5, 7)))
    became = represent(value, target)
    result = became.fields.value
    near = (target.next_up(result), target.next_down(result)) if result < target.max else (target.max, 0.0)
    texts = [short(each) for each in (result, value, *near, float("inf"), 0.0) if each is not None]
    return _made("cast", f"What does {short(value)} become in {target.name}?", texts, _why_cast(became), rng)


def _cast_of_small(target: FloatFormat, rng: random.Random) -> Drill:
    """Ask in units of the smallest number above zero, as one would on a whiteboard."""
    assert target.smallest_subnormal
    unit, factor = target.smallest_subnormal, rng.choice((0.25, 0.5, 0.75, 1.25, 1.5, 2.5, 2.75))
    became = represent(factor * unit, target)
    count, power = became.fields.value / unit, power_of_two(unit)
    texts = [f"{each:g} × {power}" if each else "0" for each in (count, factor, 1.0, 0.0, 2.0, 3.0)]
    text = f"What does {factor:g} × {power} become in {target.name}?"
    return _made("cast", text, texts, _why_cast(became), rng)


def _why_cast(became: Representation) -> str:
    target, value = became.format, became.fields.value
    if became.outcome == "overflow":
        end = f"The largest number of {target.name} is {short(target.max)}"
        return f"{end}; what rounds beyond it becomes {value}."
    if became.outcome == "exact":
        return f"It is a number of {target.name}: nothing is rounded."
    step = f"{target.name} counts in steps of {power_of_two(target.spacing(value))} here"
    return f"{step}. The nearest one wins; halfway, it is the one whose last bit is 0."


def _dtype(rng: random.Random) -> Drill:
    """Ask which dtype the result of an operation has under autocast."""
    device = rng.choice(("cuda", "cpu"))
    name = rng.choice(_OPERATIONS)
    right = _ANSWERS[policy_of(name, device)]
    where = {"cuda": "CUDA", "cpu": "a CPU"}[device]
    text = f"Under autocast on {where}: which dtype has the result of `{name}`?"
    others = [each for each in dict.fromkeys(_ANSWERS.values()) if each != right]
    answers = [right, *rng.sample(others, k=len(others))]
    return _made("dtype", text, answers, autocast.explain(name, device), rng)


def _bytes(rng: random.Random) -> Drill:
    """Ask how much memory a tensor, or the training of a model, takes."""
    if rng.random() < 0.5:
        shape = (rng.choice((8, 16, 32)), rng.choice((512, 1024, 2048)), rng.choice((768, 1024, 4096)))
        dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn))
        tensor = torch.empty(shape, dtype=dtype, device="meta")
        name = str(dtype).removeprefix("torch.")
        text = f"How many bytes has a {name} tensor of shape {' × '.join(map(str, shape))}?"
        why = f"{tensor.numel():,} elements, {8 * tensor.element_size()} bits each."
        return _made("bytes", text, _memories(tensor.nbytes), why, rng)
    count = rng.choice((125, 350, 1300, 7000)) * 10**6
    held = parallel.memory_per_rank(count, 1, convention="fp32")
    text = f"AdamW trains {count / 1e9:g} billion parameters under autocast. "
    text += "How much memory do weights, gradients and moments take?"
    parts = ", ".join(f"{nbytes // count} for {what}" for what, nbytes in held.held.items())
    why = f"{parts}: {held.bytes_per_parameter:g} bytes a parameter."
    return _made("bytes", text, _memories(held.total), why, rng)


def _memories(nbytes: int) -> list[str]:
    """Return an amount, and what one gets who forgets a factor."""
    return [memory(nbytes), *(memory(int(nbytes * factor)) for factor in (2, 0.5, 4, 0.25, 8))]


def _curve(rng: random.Random) -> Drill:
    """Ask which training a loss curve is of; the questions are lesson 06's, where curves have numbers."""
    curve = rng.choice(clinic.LOSS_CURVES)
    asked = quizzes.question(f"curves.{curve}")
    choices = rng.sample(asked.choices, k=len(asked.choices))
    text = re.sub(r"^Curve \d+: | as in curve \d+", "", asked.text)
    return Drill("curve", Question(asked.id, text[0].upper() + text[1:], tuple(choices)), curve)


def _made(kind: str, text: str, answers: list[str], why: str, rng: random.Random) -> Drill:
    """Make a drill of answers of which the first is right; of the others some are drawn."""
    right, *others = dict.fromkeys(answers)
    wrong = [Choice(each, why) for each in others[: _CHOICES - 1]]
    choices = [Choice(right, why, right=True), *wrong]
    return Drill(kind, Question(f"drill.{kind}", text, tuple(rng.sample(choices, k=len(choices)))))


_DRAWN: dict[str, Callable[[random.Random], Drill]]
_DRAWN = {"cast": _cast, "dtype": _dtype, "bytes": _bytes, "curve": _curve}
KINDS = tuple(_DRAWN)
