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


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_epoch(values, curve):
    steps = curve.epoch_steps
    return [sum(values[i : i + steps]) / steps for i in range(0, len(values), steps)]


def epochs(curve):
    steps = curve.epoch_steps
    return [curve.losses[i : i + steps] for i in range(0, len(curve.losses), steps)]


def falls(curve):
    means = by_epoch(curve.losses, curve)
    return means[-1] < 0.2 * means[0] and all(after < before for before, after in itertools.pairwise(means))


def test_there_are_twelve_and_each_has_a_question_with_its_number():
    assert len(clinic.LOSS_CURVES) == 12
    for number, name in enumerate(clinic.LOSS_CURVES, start=1):
        assert question(f"curves.{name}").text.startswith(f"Curve {number}: ")
    asked = [each for each in questions() if each.startswith("curves.")]
    assert asked == [f"curves.{name}" for name in clinic.LOSS_CURVES]


def test_three_are_healthy_and_say_so():
    healthy = [
        name for name in clinic.LOSS_CURVES if question(f"curves.{name}").answer.text.startswith("Healthy")
    ]
    assert healthy == ["begins_too_high", "fp32", "amp"]
    assert all(falls(clinic.loss_curve(name)) for name in healthy)


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
    assert set(epochs(curve)) == {curve.losses[: curve.epoch_steps]}
    assert set(curve.scales) == {DEFAULT_SCALE}


def test_a_scale_that_is_too_high_costs_six_steps():
    scales = clinic.loss_curve("begins_too_high").scales
    assert scales[:7] == tuple(DEFAULT_SCALE / 2**i for i in range(7))
    assert scales[6] == scales[7]
    assert scales[-1] == scales[6] / 4, "two more halvings follow"


def test_weights_in_bf16_stay_behind_the_same_script_in_fp32():
    curve = clinic.loss_curve("weights_in_bf16")
    (in_fp32,) = curve.beside.values()
    learned, could = (by_epoch(v, curve)[0] - by_epoch(v, curve)[-1] for v in (curve.losses, in_fp32))
    assert 0 < learned < 0.2 * could


def test_a_step_past_the_scaler_ends_it_within_a_batch():
    curve = clinic.loss_curve("past_the_scaler")
    finite = [math.isfinite(loss) for loss in curve.losses]
    first = finite.index(False)
    assert first > 50
    assert not any(finite[first:])
    assert curve.scales[-1] < 1e-9


def test_the_same_with_a_scaler_that_steps_goes_on():
    run = type("Guarded", (loss_curves._PastTheScaler,), {"take_step": loss_curves._Training.take_step})()
    run.run()
    assert sum(not math.isfinite(loss) for loss in run.losses) <= 4
    assert math.isfinite(run.losses[-1])


def test_a_scaler_made_anew_jumps_back_in_every_epoch():
    curve = clinic.loss_curve("scaler_made_anew")
    assert curve.scales[:: curve.epoch_steps] == (DEFAULT_SCALE,) * len(epochs(curve))
    assert min(curve.scales) <= DEFAULT_SCALE / 2**6
    assert by_epoch(curve.losses, curve)[-1] > 2 * by_epoch(clinic.loss_curve("amp").losses, curve)[-1]


def test_an_average_in_half_stays_behind_a_sound_one():
    curve = clinic.loss_curve("average_in_half")
    (averaged,) = curve.beside.values()
    kept = averaged_in_fp32(loss_curves._AverageInHalf())
    assert 0.19 < loss_curves._DECAY ** len(curve.losses) < 0.23, "a fifth, as the question about it says"
    assert averaged[-1] > 0.7 * averaged[0]
    assert kept < 0.2


def averaged_in_fp32(run):
    """Train the same, and return the last loss of an average that is kept in fp32."""
    average = [p.detach().clone() for p in run.model.parameters()]
    step = run.scaler.step

    def averaging(optimizer):
        step(optimizer)
        for mean, weight in zip(average, run.model.parameters(), strict=True):
            mean.lerp_(weight.detach(), 1 - loss_curves._DECAY)

    run.scaler.step = averaging
    run.run()
    names = [name for name, _ in run.model.named_parameters()]
    inputs, targets = run.batches[0]
    outputs = torch.func.functional_call(run.model, dict(zip(names, average, strict=True)), (inputs,))
    return torch.nn.functional.cross_entropy(outputs, targets).item()


def test_an_infinite_gradient_skips_every_step_with_a_finite_loss():
    curve = clinic.loss_curve("infinite_gradient")
    assert all(map(math.isfinite, curve.losses))
    assert set(epochs(curve)) == {curve.losses[: curve.epoch_steps]}
    assert curve.scales == tuple(DEFAULT_SCALE / 2.0**i for i in range(len(curve.losses)))


def test_a_high_rate_jumps_and_comes_to_nothing_in_fp32():
    curve = clinic.loss_curve("high_rate")
    assert max(curve.losses) > 2 * curve.losses[0]
    assert by_epoch(curve.losses, curve)[-1] > curve.losses[0]
    assert all(map(math.isfinite, curve.losses))


def test_after_a_high_rate_no_unit_of_the_last_relu_lets_a_gradient_through():
    run = loss_curves._HighRate()
    run.run()
    *_, last = (n for n, layer in enumerate(run.model.net) if isinstance(layer, torch.nn.ReLU))
    images = torch.cat([inputs for inputs, _ in run.make_batches()])
    assert not run.model.net[: last + 1](images).any()


def test_without_scaling_it_stands_where_fp32_goes_on():
    curve = clinic.loss_curve("unscaled")
    run = type("InFp32", (loss_curves._Unscaled,), {"dtype": None})()
    run.run()
    means, in_fp32 = by_epoch(curve.losses, curve), by_epoch(run.losses, curve)
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
    run, curve = _WatchedUnscaled(), clinic.loss_curve("unscaled")
    run.run()
    assert tuple(run.losses) == curve.losses, "watching changes nothing"
    vanished, left = by_epoch(run.vanished, curve), by_epoch(run.norm_left, curve)
    assert all(0.8 < share < 0.98 for share in vanished)
    assert left[0] > 0.85 > 0.7 > left[1]
    assert all(0.45 < share < 0.6 for share in left[2:])


def test_a_scaled_log_is_the_healthy_loss_times_the_scale():
    logged = clinic.loss_curve("logs_scaled").losses
    healthy = clinic.loss_curve("amp").losses
    factors = [a / b for a, b in zip(logged, healthy, strict=True)]
    powers = [round(math.log2(factor)) for factor in factors[:60]]
    assert powers[0] == 16
    assert set(powers) >= {16, 17, 18}
    assert factors[0] == pytest.approx(DEFAULT_SCALE)


def test_an_unknown_curve_is_answered_with_those_there_are():
    with pytest.raises(ValueError, match=r"there is no loss curve 'fp64'.*fp32"):
        clinic.loss_curve("fp64")
