"""Twelve runs to diagnose: each looks as its question says, and its cause is what makes it look so."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from amp_lessons import clinic
from amp_lessons.course.clinic import loss_curves
from amp_lessons.course.quizzes import question, questions

DEFAULT_SCALE = 65536.0


def epochs(curve, values=None):
    values, steps = values or curve.losses, curve.epoch_steps
    return [tuple(values[i : i + steps]) for i in range(0, len(values), steps)]


def by_epoch(curve, values=None):
    return [sum(each) / len(each) for each in epochs(curve, values)]


def trained(kind, **other):
    """A run of a kind that is trained, and other than it in these."""
    run = type("Other", (kind,), other)()
    run.run()
    return run


def test_there_are_twelve_and_each_has_a_question_with_its_number():
    assert len(clinic.LOSS_CURVES) == 12
    asked = {name: each for name, each in questions().items() if name.startswith("curves.")}
    assert list(asked) == [f"curves.{name}" for name in clinic.LOSS_CURVES]
    assert all(each.text.startswith(f"Curve {n}: ") for n, each in enumerate(asked.values(), start=1))
    with pytest.raises(ValueError, match=r"there is no loss curve 'fp64'.*fp32"):
        clinic.loss_curve("fp64")


def test_three_are_healthy_and_say_so():
    said = {name: question(f"curves.{name}").answer.text for name in clinic.LOSS_CURVES}
    healthy = [name for name, text in said.items() if text.startswith("Healthy")]
    assert healthy == ["begins_too_high", "fp32", "amp"]
    for means in map(by_epoch, map(clinic.loss_curve, healthy)):
        assert means[-1] < 0.2 * means[0]
        assert all(after < before for before, after in itertools.pairwise(means))


def test_amp_learns_as_fp32_does_and_its_scale_stands():
    fp32, amp = clinic.loss_curve("fp32"), clinic.loss_curve("amp")
    assert max(abs(a - b) for a, b in zip(fp32.losses, amp.losses, strict=True)) < 0.05
    assert (fp32.scales, set(amp.scales)) == ((), {DEFAULT_SCALE})


def test_one_autocast_repeats_the_first_epoch_and_the_weights_move():
    run = loss_curves._OneAutocast()
    start = [p.detach().clone() for p in run.model.parameters()]
    run.run()
    assert any(not torch.equal(a, b) for a, b in zip(start, run.model.parameters(), strict=True))
    curve = clinic.loss_curve("one_autocast")
    assert len(set(epochs(curve))) == 1
    assert set(curve.scales) == {DEFAULT_SCALE}


def test_a_scale_that_is_too_high_costs_six_steps():
    scales = clinic.loss_curve("begins_too_high").scales
    assert scales[:8] == tuple(DEFAULT_SCALE / 2 ** min(i, 6) for i in range(8))
    assert scales[-1] == scales[6] / 4, "two more halvings follow"


def test_weights_in_bf16_stay_behind_the_same_script_in_fp32():
    curve = clinic.loss_curve("weights_in_bf16")
    (in_fp32,) = curve.beside.values()
    learned, could = (each[0] - each[-1] for each in (by_epoch(curve), by_epoch(curve, in_fp32)))
    assert 0 < learned < 0.2 * could


def test_a_step_past_the_scaler_ends_it_within_a_batch_and_one_by_the_scaler_goes_on():
    curve = clinic.loss_curve("past_the_scaler")
    finite = [math.isfinite(loss) for loss in curve.losses]
    assert finite.index(False) > 50
    assert not any(finite[finite.index(False) :])
    assert curve.scales[-1] < 1e-9
    guarded = trained(loss_curves._PastTheScaler, take_step=loss_curves._Training.take_step).losses
    assert sum(not math.isfinite(loss) for loss in guarded) <= 4
    assert math.isfinite(guarded[-1])


def test_a_scaler_made_anew_jumps_back_in_every_epoch():
    curve = clinic.loss_curve("scaler_made_anew")
    assert curve.scales[:: curve.epoch_steps] == (DEFAULT_SCALE,) * len(epochs(curve))
    assert min(curve.scales) <= DEFAULT_SCALE / 2**6
    assert by_epoch(curve)[-1] > 2 * by_epoch(clinic.loss_curve("amp"))[-1]


def test_an_average_in_half_stays_behind_a_sound_one():
    curve, run = clinic.loss_curve("average_in_half"), loss_curves._AverageInHalf()
    (averaged,) = curve.beside.values()
    average, step = {name: p.detach().clone() for name, p in run.model.named_parameters()}, run.scaler.step

    def averaging(optimizer):
        step(optimizer)
        for name, weight in run.model.named_parameters():
            average[name].lerp_(weight.detach(), 1 - loss_curves._DECAY)

    run.scaler.step = averaging
    run.run()
    inputs, targets = run.batches[0]
    outputs = torch.func.functional_call(run.model, average, (inputs,))
    assert 0.19 < loss_curves._DECAY ** len(curve.losses) < 0.23, "a fifth, as the question about it says"
    assert averaged[-1] > 0.7 * averaged[0]
    assert torch.nn.functional.cross_entropy(outputs, targets) < 0.2, "kept in fp32"


def test_an_infinite_gradient_skips_every_step_with_a_finite_loss():
    curve = clinic.loss_curve("infinite_gradient")
    assert all(map(math.isfinite, curve.losses))
    assert len(set(epochs(curve))) == 1
    assert curve.scales == tuple(DEFAULT_SCALE / 2.0**i for i in range(len(curve.losses)))


def test_a_high_rate_jumps_and_comes_to_nothing_in_fp32():
    curve = clinic.loss_curve("high_rate")
    assert max(curve.losses) > 2 * curve.losses[0]
    assert by_epoch(curve)[-1] > curve.losses[0]
    assert all(map(math.isfinite, curve.losses))


def test_after_a_high_rate_no_unit_of_the_last_relu_lets_a_gradient_through():
    run = trained(loss_curves._HighRate)
    *_, last = (n for n, layer in enumerate(run.model.net) if isinstance(layer, torch.nn.ReLU))
    images = torch.cat([inputs for inputs, _ in run.make_batches()])
    assert not run.model.net[: last + 1](images).any()


def test_without_scaling_it_stands_where_fp32_goes_on():
    curve = clinic.loss_curve("unscaled")
    means, in_fp32 = by_epoch(curve), by_epoch(curve, trained(loss_curves._Unscaled, dtype=None).losses)
    assert means[-1] > 0.95 * means[2]
    assert in_fp32[-1] < 0.8 * means[-1]


class _WatchedUnscaled(loss_curves._Unscaled):
    """Compares each step's gradients with those of fp32, from the same weights and noise."""

    def __init__(self):
        super().__init__()
        self.vanished, self.norm_left = [], []

    def loss(self, inputs, targets):
        noise = torch.get_rng_state()
        with torch.autocast(self.device, enabled=False):
            true = torch.autograd.grad(super().loss(inputs, targets) * self.loss_weight, self.parameters())
        torch.set_rng_state(noise)
        self.true = torch.cat([gradient.flatten() for gradient in true])
        return super().loss(inputs, targets)

    def parameters(self):
        return list(self.model.parameters())

    def take_step(self):
        found = torch.cat([parameter.grad.flatten() for parameter in self.parameters()])
        self.vanished.append((found[self.true != 0] == 0).float().mean().item())
        self.norm_left.append((self.true[found != 0].norm() / self.true.norm()).item())
        super().take_step()


def test_without_scaling_nine_of_ten_gradients_vanish_and_at_first_the_rest_has_nearly_all_of_the_norm():
    run, curve = trained(_WatchedUnscaled), clinic.loss_curve("unscaled")
    assert tuple(run.losses) == curve.losses, "watching changes nothing"
    vanished, left = by_epoch(curve, run.vanished), by_epoch(curve, run.norm_left)
    assert all(0.8 < share < 0.98 for share in vanished)
    assert left[0] > 0.85 > 0.7 > left[1]
    assert all(0.45 < share < 0.6 for share in left[2:])


def test_a_scaled_log_is_the_healthy_loss_times_the_scale():
    logged, healthy = (clinic.loss_curve(name).losses for name in ("logs_scaled", "amp"))
    factors = [a / b for a, b in zip(logged, healthy, strict=True)]
    assert {round(math.log2(factor)) for factor in factors[:60]} >= {16, 17, 18}
    assert factors[0] == pytest.approx(DEFAULT_SCALE)
