"""What a report adds up: of layers over steps, and of steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from amp_lessons.audit.report import steps
from amp_lessons.audit.report.losses import layer_curves, layer_rows, loss_map, used_format
from amp_lessons.audit.seen import AS_TRAINED, LayerSeen, StepSeen
from amp_lessons.formats.dtypes import dtype_name
from tests.audit.report.samples import GRADIENTS, layer_step, report


def with_histories(**histories):
    layers = {name: LayerSeen(name, 3, {}, tuple(history)) for name, history in histories.items()}
    return replace(report(), layers=layers)


def test_steps_add_up_as_if_their_gradients_were_of_one():
    first, second = torch.randn(50).mul(2.0**-25), torch.randn(80).mul(2.0**-24)
    (row,) = layer_rows(with_histories(layer=[layer_step(0, first), layer_step(1, second)]))
    together = torch.cat([first, second])
    lost = (together != 0) & (together.to(torch.float16) == 0)
    assert row.losses["fp16"].count == pytest.approx(float(lost.sum() / (together != 0).sum()))
    assert row.losses["fp16"].norm == pytest.approx(float(together[lost].norm() / together.norm()), rel=1e-5)
    assert row.losses[AS_TRAINED].count < row.losses["fp16"].count
    assert row.lost_updates == 0.5


def test_zeros_are_those_of_steps_that_were_made_where_there_are_such():
    made, skipped = layer_step(0), replace(layer_step(1), zero_fraction=1.0)  # the report's second step
    (both,) = layer_rows(with_histories(layer=[made, skipped]))
    (alone,) = layer_rows(with_histories(layer=[skipped]))
    assert (both.zeros, alone.zeros) == (0.0, 1.0)


def test_the_worst_layer_is_the_one_that_loses_most_in_training():
    good = layer_step(0, torch.ones(3))
    lost_only_elsewhere = replace(layer_step(0), census=good.census, lost_update_fraction=0.0)
    whole = with_histories(good=[good], elsewhere=[lost_only_elsewhere], bad=[layer_step(0)])
    assert [row.name for row in layer_rows(whole)] == ["bad", "good", "elsewhere"]
    better = with_histories(good=[replace(good, lost_update_fraction=0.0)], elsewhere=[lost_only_elsewhere])
    assert [row.name for row in layer_rows(better)] == ["elsewhere", "good"]


def test_what_an_overflow_leaves_is_not_known_rather_than_nothing():
    whole = with_histories(layer=[layer_step(0), layer_step(1, GRADIENTS * math.inf)])
    losses = loss_map(whole, "fp16", "count", 10)
    assert losses.steps == (0,)
    assert losses.shares == ((2 / 3,),)
    assert losses.most == 2 / 3


def test_a_map_has_a_row_for_each_layer_and_holes_where_nobody_looked():
    whole = with_histories(early=[layer_step(0)], late=[layer_step(4)], fine=[layer_step(4, torch.ones(3))])
    losses = loss_map(whole, "fp16", "count", 2)
    assert losses.layers == ("early", "late")
    assert losses.steps == (0, 4)
    assert losses.shares == ((2 / 3, None), (None, 2 / 3))
    assert losses.total == 3


def test_the_curves_of_a_layer_are_in_all_formats():
    curves = layer_curves(report(), "body", "count")
    assert curves == {
        AS_TRAINED: {0: 1 / 3, 2: 1 / 3},
        "fp16": {0: 2 / 3, 2: 2 / 3},
        "bf16": {0: 0.0, 2: 0.0},
    }
    assert layer_curves(report(), "nobody", "norm") == {}


def test_without_autocast_nothing_was_used():
    whole = with_histories(layer=[replace(layer_step(0), census=None)])
    assert used_format(whole) == ""
    assert AS_TRAINED not in layer_rows(whole)[0].losses
    assert "as trained" not in str(replace(report(), layers={}))


@pytest.mark.parametrize(
    ("what", "dtype", "unusual"),
    [
        ("weight", torch.bfloat16, True),
        ("optimizer.exp_avg", torch.float16, True),
        ("weight.gradient", torch.float8_e5m2, True),
        ("output", torch.float16, False),
        ("weight", torch.float32, False),
        ("running_mean", torch.float64, False),
        ("mask", torch.bool, False),
    ],
)
def test_unusual_is_what_mixed_precision_keeps_in_more_bits(what, dtype, unusual):
    layer = LayerSeen("layer", 3, {what: dtype_name(dtype)}, (layer_step(0),))
    (row,) = layer_rows(replace(report(), layers={"layer": layer}))
    assert bool(row.unusual) == unusual


def taken(scales, optimizer=0):
    return tuple(StepSeen(i, optimizer, True, scale) for i, scale in enumerate(scales))


def test_the_path_of_the_scale_names_where_it_changed():
    whole = replace(report(), steps=taken([16.0, 16.0, 8.0, 16.0]))
    assert steps.scale_path(whole.steps) == [(0, 16.0), (2, 8.0), (3, 16.0)]
    assert list(steps.remarks(whole)) == ["The loss scale: 2⁴, 2³ from step 3, 2⁴ from step 4."]


def test_a_long_path_is_told_by_its_ends():
    whole = replace(report(), steps=taken([2.0 ** (i % 2) for i in range(20)]))
    (said,) = steps.remarks(whole)
    assert said.count("from step") == 6
    assert "13 more changes" in said


def test_without_a_scaler_there_is_no_path():
    assert list(steps.remarks(replace(report(), steps=taken([1.0, 1.0])))) == []


def test_each_optimizer_has_a_row():
    both = (*taken([1.0, 1.0]), StepSeen(2, 1, False, 4.0))
    whole = replace(report(), steps=both)
    table = steps.steps_table(whole)
    assert [row[:3] for row in table.rows] == [("1", "2", "none"), ("2", "1", "1 (100 %)")]
    assert list(steps.remarks(whole)) == [
        "The loss scale of optimizer 2: 2².",
        "Skipped steps of optimizer 2: 3.",
    ]
