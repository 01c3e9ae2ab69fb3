"""Buffers that inf or NaN was written into are named, whatever became of the step; sound ones are not."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit
from tests.audit.plain_loops import mistakes
from tests.audit.trainings import put_back

CODE = "buffers_not_finite"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def trained(
    model: nn.Module,
    *overflow_at: int,
    every: int = 1,
    given: bool = True,
    fused: bool = False,
    after: Callable[[int, list[Tensor]], object] = lambda step, kept: None,
) -> audit.Seen:
    """Watch eight steps in fp16 with a scaler; in some of them one of six rows does not fit into fp16."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu")
    with audit.watch(*([model] if given else []), every=every) as seen:
        for step in range(8):
            inputs, kept = torch.randn(6, 8), [buffer.clone() for buffer in model.buffers()]
            inputs[0] *= 1e6 if step in overflow_at else 1.0
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(inputs), torch.arange(6) % 4)  # the line that is named
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            after(step, kept)
    return seen


def trained_without_scaler(model: nn.Module, leaves_out_what_is_not_finite: bool) -> audit.Seen:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model, every=1) as seen:
        for factor in (1.0, 1e39, 1.0, 1.0):
            loss = F.cross_entropy(model(torch.randn(6, 8) * factor), torch.arange(6) % 4)
            if loss.isfinite() or not leaves_out_what_is_not_finite:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return seen


def message(seen: audit.Seen) -> str:
    """Return what is said of buffers."""
    return next(each.message for each in seen.report.findings if each.code == CODE)


@pytest.mark.parametrize("every", [1, 3, 10])
@pytest.mark.parametrize("fused", [False, True])
def test_statistics_destroyed_in_a_skipped_step_are_named_while_training_looks_sound(every, fused):
    model = network()
    seen = trained(model, 3, every=every, fused=fused)
    assert [step.index for step in seen.steps if not step.happened] == [3]
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model.eval()(torch.randn(2, 8)).isnan().all()
    (finding,) = seen.report.findings
    assert (finding.code, finding.first_step, finding.count, finding.likely) == (CODE, 4, 1, "")
    assert "`1.running_mean` and 1 other buffer are inf or NaN" in finding.message
    assert "since a step that was skipped" in finding.message
    assert "evaluation takes these" in finding.message
    assert "the line that is named" in linecache.getline(__file__, finding.place.line)


@pytest.mark.parametrize("overflow_at", [0, 7])
@pytest.mark.parametrize("given", [True, False])
def test_the_first_and_the_last_step_count_as_well(overflow_at, given):
    assert mistakes(trained(network(), overflow_at, every=10, given=given).report) == {CODE}


def test_it_is_named_where_a_loop_without_a_scaler_leaves_such_a_batch_out():
    seen = trained_without_scaler(network(), leaves_out_what_is_not_finite=True)
    assert mistakes(seen.report) == {CODE}
    assert "skipped, " not in message(seen)


def test_where_the_weights_are_lost_as_well_the_buffers_are_not_the_news():
    model = network()
    seen = trained_without_scaler(model, leaves_out_what_is_not_finite=False)
    assert model[1].running_var.isnan().all()
    assert mistakes(seen.report) == {"weights_broken"}


def test_a_checkpoint_whose_statistics_are_nan_is_named():
    model = network()
    model[1].running_var.fill_(torch.nan)
    assert "`1.running_var` is inf or NaN, and" in message(trained(model))


class Codebook(nn.Module):
    """A layer that keeps a moving average of what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.layer(inputs)
        self.average.lerp_(rows.detach().float().mean(0), 0.1)
        return rows


def test_buffers_that_are_no_norms_are_named_without_a_word_about_evaluation():
    said = message(trained(Codebook(), 3))
    assert "`Codebook.average` is inf or NaN" in said
    assert "evaluation" not in said


@pytest.mark.parametrize("overflow_at", [(3,), (3, 4), (7,)])
def test_what_a_loop_puts_back_in_time_did_no_harm(overflow_at):
    model = network()
    seen = trained(
        model, *overflow_at, after=lambda step, kept: step in overflow_at and put_back(model, kept)
    )
    assert seen.report.passed, seen.report
    assert seen.first_nonfinite.step == overflow_at[0]


def test_put_back_too_late_is_too_late():
    model = network()
    sound = [buffer.clone() for buffer in model.buffers()]
    seen = trained(model, 3, after=lambda step, kept: step == 5 and put_back(model, sound))
    assert mistakes(seen.report) == {CODE}
