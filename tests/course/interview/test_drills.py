"""Drills: drawn by a seed, with answers that PyTorch itself confirms."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import clinic, interview, quizzes
from amp_lessons.course.interview.drilling import KINDS
from tests.autocast import pytorch_lists
from tests.raised import lowered

TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def of(kind, number=150):
    return [interview.drill(seed, kind) for seed in range(number)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_the_same_drill_with_one_right_answer_among_different_ones(kind):
    assert of(kind, 12) == of(kind, 12)
    assert len({(drill.question.text, drill.question.choices) for drill in of(kind, 12)}) >= 6
    for drill in of(kind):
        texts = [choice.text for choice in drill.question.choices]
        assert len(set(texts)) == len(texts) >= 3
        assert drill.question.choices[drill.right].right
        assert drill.seconds == 50
    assert len({drill.right for drill in of(kind)}) > 1, "always at the same place"


def number(text):
    """Read a number as drills write it: ``65519``, ``0.75 × 2⁻²⁴``."""
    factor, _, power = lowered(text).partition(" × ")
    return float(factor.rstrip("…")) * (2.0 ** int(power.removeprefix("2^")) if power else 1.0)


def test_casts_are_those_of_pytorch():
    seen = set()
    for drill in of("cast"):
        asked, name = re.fullmatch(r"What does (.+) become in (\w+)\?", drill.question.text).groups()
        became = torch.tensor(number(asked), dtype=torch.float64).to(TORCH[name]).double().item()
        answer = number(drill.question.answer.text)
        assert answer == became or (answer != answer and became != became), drill.question
        seen.add(name)
    assert seen == set(TORCH)


def half(*shape):
    return torch.rand(*shape).bfloat16()


ON_A_CPU = {
    "matmul": lambda: torch.matmul(torch.rand(2, 2), torch.rand(2, 2)),
    "linear": lambda: F.linear(torch.rand(2, 2), torch.rand(2, 2)),
    "conv2d": lambda: F.conv2d(torch.rand(1, 1, 4, 4), torch.rand(1, 1, 2, 2)),
    "softmax": lambda: F.softmax(half(2, 2), -1),
    "mse_loss": lambda: F.mse_loss(half(2), half(2)),
    "relu": lambda: F.relu(half(2)),
    "cat": lambda: torch.cat([half(2), torch.rand(2)]),
    "exp": lambda: torch.exp(half(2)),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(half(2), half(2)),
}


def dtypes(device):
    """Yield operations that drills ask about, and the answers that are to be right."""
    for drill in of("dtype", 600):
        asked, name = re.search(r"on (CUDA|a CPU): .*`(\w+)`", drill.question.text).groups()
        if asked == device:
            yield name, drill.question.answer.text


def test_dtypes_are_those_that_autocast_gives_on_this_cpu():
    found = {name: said for name, said in dtypes("a CPU") if name in ON_A_CPU}
    assert found.keys() == ON_A_CPU.keys()
    for name, said in found.items():
        with torch.autocast("cpu", torch.bfloat16):
            dtype = ON_A_CPU[name]().dtype
        assert (dtype == torch.float32) == said.startswith(("fp32", "the widest")), (name, said, dtype)


def test_cuda_dtypes_are_those_of_pytorchs_own_test_lists():
    lists = pytorch_lists.lists.AutocastTestLists(torch.device("cpu"))
    fp32 = {entry[0] for entry in [*lists.torch_fp32, *lists.nn_fp32]}
    low = {entry[0] for entry in [*lists.torch_fp16, *lists.nn_fp16]}
    found = {name: said for name, said in dtypes("CUDA") if name in fp32 | low}
    assert len(found) > 8
    for name, said in found.items():
        assert said.startswith("fp32" if name in fp32 else "autocast's 16-bit dtype"), name


UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def test_bytes_are_counted_right():
    counted = set()
    for drill in of("bytes"):
        amount, unit = drill.question.answer.text.split()
        said = float(amount.replace(",", "")) * UNITS[unit]
        if tensor := re.search(r"has a (\w+) tensor of shape (.+)\?", drill.question.text):
            size = torch.Size(map(int, tensor[2].split(" × "))).numel()
            true = size * torch.finfo(getattr(torch, tensor[1])).bits // 8
        else:  # fp32 weights and gradients, two fp32 moments
            true = 16e9 * float(re.search(r"trains ([\d.]+) billion", drill.question.text)[1])
        assert said == pytest.approx(true, rel=0.005)
        counted.add(bool(tensor))
    assert counted == {True, False}


def test_a_curve_comes_with_the_training_and_the_question_of_lesson_06():
    drawn = of("curve", 200)
    assert {drill.curve for drill in drawn} == set(clinic.LOSS_CURVES)
    for drill in drawn:
        asked, text = quizzes.question(f"curves.{drill.curve}"), drill.question.text
        assert text.endswith(asked.text.rpartition("; ")[2].rpartition(": ")[2][1:])
        assert set(drill.question.choices) == set(asked.choices)
        assert text[0].isupper()
        assert not re.search(r"[Cc]urve \d", text), "nobody sees that number"


def test_a_round_has_every_kind_in_turn():
    assert sorted(drill.kind for drill in interview.drills(3, 4)) == sorted(KINDS)
    assert list(interview.drills(3, 4)) == list(interview.drills(3, 4)) != list(interview.drills(4, 4))
    with pytest.raises(ValueError, match="no kind of drill 'casts'; did you mean cast"):
        interview.drill(0, "casts")
