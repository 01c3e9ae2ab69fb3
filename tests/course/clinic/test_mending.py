"""Lesson 06: every half-mended patient is rejected for the right reason, every healed one accepted."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch

from amp_lessons import clinic, exercises
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.heal_frozen_weights import check as frozen_weights
from amp_lessons.course.exercises.heal_left_behind import check as left_behind
from tests.course.exercises.verdicts import assert_right, assert_wrong, cases, lesson_of, tables

TABLES = [table for table in tables() if lesson_of(table) == "06"]


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "wrong"))
def test_half_mended_code_is_named(table, name):
    assert_wrong(table, name)


@pytest.mark.parametrize(("table", "name"), cases(TABLES, "right"))
def test_healed_code_passes(table, name):
    assert_right(table, name)


@pytest.mark.few
@pytest.mark.parametrize("seed", [1009, *range(29)])  # in the first a bias makes a long detour
def test_weights_that_are_rounded_at_random_come_far_enough_whatever_is_drawn(seed):
    (table,) = (each for each in TABLES if each.exercise_id == "heal_frozen_weights")
    _, attempt = table.right["stochastic_rounding"]
    report = exercises.check(table.exercise_id, attempt, time_limit_s=40.0, seed=seed)
    assert report.passed, report


@pytest.mark.parametrize("width", [16, 96, 128])
@pytest.mark.parametrize(
    ("dtype", "promised"), [(torch.float16, 0.004), (torch.bfloat16, 0.03), (torch.float32, 0.001)]
)
@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_the_rotation_keeps_its_cards_promise_at_every_far_position(width, dtype, promised, base):
    positions = torch.arange(90_000, 100_001)
    x = torch.randn(len(positions), width).to(dtype)
    rotated = exercises.solution("heal_lost_order").function(x, positions, base)
    angles = positions.numpy()[:, None] * base ** (-np.arange(width // 2) / (width // 2))
    before, after = (each.double().numpy() for each in (x, rotated))
    pairs = before[:, : width // 2] + 1j * before[:, width // 2 :]
    turned = after[:, : width // 2] + 1j * after[:, width // 2 :]
    off = np.abs(turned - pairs * np.exp(1j * angles)) / np.abs(pairs)
    assert (off <= promised + positions.numpy()[:, None] * 2.0**-23).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("exponent", [-2, -8, -16, -30])
def test_the_norm_keeps_its_cards_promise_of_eps(dtype, exponent):
    x = torch.randn(6, 8).to(dtype)
    x[::2] = 0
    normalised = exercises.solution("heal_first_batch").function(x, 10.0**exponent)
    wide = x.double().numpy()
    right = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 10.0**exponent)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}[dtype]
    assert tolerance >= 4 * torch.finfo(dtype).eps / 2, "as the card says: rounding costs half a spacing"
    off = np.abs(normalised.double().numpy() - right)
    assert (off <= tolerance * np.abs(right).max(-1, keepdims=True)).all()


def test_cards_say_how_far_weights_may_move_and_do():
    card = {name: shelf.find(name).asks for name in ("heal_frozen_weights", "heal_left_behind")}
    assert frozen_weights._MOST == 1.75
    assert "one and three quarters" in card["heal_frozen_weights"]
    draw = torch.Generator().manual_seed(0)
    history = left_behind._drifting(3, left_behind._FAR, draw)
    assert 0.05 < (history[-1] - history[0]).max() < 0.1
    assert "by less than 0.1 in all" in card["heal_left_behind"]


def test_a_far_position_and_its_cosine_are_those_that_bf16_has():
    seen = " ".join(each.told for each in clinic.patient("heal_lost_order").seen_at)
    told = r"Position ([\d,]+) becomes ([\d,]+) in bf16, and its cosine (\S+) instead of (\S+)[.]"
    *places, wrong, right = re.search(told, seen).groups()
    exact, rounded = (int(each.replace(",", "")) for each in places)
    assert torch.tensor(float(exact)).bfloat16() == rounded
    assert [f"{math.cos(each):.2f}" for each in (rounded, exact)] == [wrong, right]
