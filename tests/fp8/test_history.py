"""Delayed scaling: scales of the steps before, remembered once per step and tensor."""

from dataclasses import replace

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.formats import FORMATS

E4M3 = FORMATS["fp8_e4m3"]
DELAYED = replace(fp8.RECIPES["delayed"], amax_history=3)


def in_force(history):
    return float(history.amax_for("input", E4M3))


def test_the_largest_of_the_last_steps_is_in_force():
    history = fp8.AmaxHistory(3)
    assert in_force(history) == 448  # which is a scale of 1
    seen = []
    for amax in (2.0, 8.0, 1.0, 1.0, 4.0):
        history.remember("input", torch.tensor(amax))
        seen.append(in_force(history))
    assert seen == [2, 8, 8, 8, 4]


def test_what_is_no_number_changes_no_scale():
    history = fp8.AmaxHistory(2)
    history.remember("input", torch.tensor(3.0))
    for amax in (torch.inf, torch.nan):
        history.remember("input", torch.tensor(amax))
        assert in_force(history) == 3
    for _ in range(2):
        history.remember("input", torch.tensor(0.0))
    assert in_force(history) == 3


def test_a_nan_stays_visible_where_an_infinity_saturates():
    history, weight = fp8.AmaxHistory(2), torch.eye(2)
    x = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0]])
    seen = fp8.linear(x, weight, None, DELAYED, history=history)
    assert seen[0].isnan().all()
    assert seen[1].tolist() == [448, 1]


def test_a_step_is_remembered_once_for_each_tensor():
    history = fp8.AmaxHistory(3)
    x, weight = torch.full((4, 2), 5.0), torch.full((3, 2), 7.0, requires_grad=True)
    x.requires_grad_()
    fp8.linear(x, weight, None, DELAYED, history=history).backward(torch.full((4, 3), 9.0))
    assert history.amax.tolist() == [[5, 0, 0], [7, 0, 0], [9, 0, 0]]


def test_the_first_step_has_scale_one_and_the_next_the_one_before():
    history = fp8.AmaxHistory(3)
    weight = torch.eye(2) * 448
    small = torch.full((1, 2), 2.0**-12)
    assert not fp8.linear(small, weight, None, DELAYED, history=history).any()  # underflows at scale 1
    assert fp8.linear(small, weight, None, DELAYED, history=history).tolist() == [[448 * 2.0**-12] * 2]
    glitch = fp8.linear(small * 1000, weight, None, DELAYED, history=history)
    assert glitch.tolist() == [[448 * 2.0**-12] * 2]  # a stale scale clips it


def test_evaluation_leaves_the_history_alone():
    layer = fp8.ScaledLinear(2, 2, recipe=DELAYED).eval()
    layer(torch.ones(1, 2))
    assert not layer.history.amax.any()
    assert not fp8.convert(torch.nn.Linear(2, 2).eval(), DELAYED).history.training
    layer.train()(torch.ones(1, 2))
    assert layer.history.amax[0].tolist() == [1, 0, 0]


def test_an_empty_batch_is_no_step():
    layer = fp8.ScaledLinear(2, 2, recipe=DELAYED)
    layer(torch.ones(0, 2))
    assert not layer.history.amax[0].any()


def test_a_length_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="length is a whole number"):
        fp8.AmaxHistory(0)
