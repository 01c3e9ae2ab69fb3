import pytest
import torch

from amp_lessons.course.material import models
from amp_lessons.course.views import CycleView, ScalerView
from amp_lessons.course.views.base import states
from tests.course.views import samples
from tests.course.views.conftest import faults_for_a_phone
from tests.course.views.hands import press

cross_entropy = torch.nn.functional.cross_entropy


@pytest.fixture
def batches():
    return samples.batches()


@pytest.fixture
def scaler_view(batches):
    return ScalerView(models.digits_classifier(16), batches, cross_entropy, steps=12, growth_interval=4)


@pytest.fixture
def cycle_view(batches):
    return CycleView(models.digits_classifier(16), batches, cross_entropy)


def test_a_turned_knob_starts_the_run_again(scaler_view):
    press(scaler_view, "Train 20 more steps")
    scaler_view._init_exponent.value = 3
    assert scaler_view.caption.startswith("12 steps from a scale of 2³: 0 skipped")
    assert scaler_view.timeline.grown == (3, 7, 11)


@pytest.mark.parametrize("exponent", [0, 24, 40])
def test_for_a_phone_all_of_a_run_can_be_read_down_to_the_exponents(scaler_view, exponent):
    scaler_view._init_exponent.value = exponent
    assert list(faults_for_a_phone(scaler_view.picture.narrow)) == []


def test_every_run_starts_from_the_same_weights(scaler_view):
    first = [step.loss for step in scaler_view.timeline.steps]
    press(scaler_view, "Start again")
    assert [step.loss for step in scaler_view.timeline.steps] == first


def test_a_clean_step_changes_the_parameters_and_a_skipped_one_does_not(cycle_view):
    start = cycle_view.snapshot
    assert start.phase == "forward"
    cycle_view.advance(5)
    assert cycle_view.caption.startswith("The optimizer stepped")
    stepped = cycle_view.snapshot.weights
    assert stepped != start.weights
    press(cycle_view, "Inject an overflow")
    cycle_view.advance(7)
    assert cycle_view.caption.startswith("The step was skipped")
    assert cycle_view.snapshot.weights == stepped


def test_unscaling_divides_the_gradients_by_exactly_the_scale(cycle_view):
    cycle_view.advance(2)
    scaled = cycle_view.snapshot
    cycle_view.advance()
    assert cycle_view.snapshot.gradients == tuple(value / scaled.scale for value in scaled.gradients)


def test_gradients_travel_in_half_precision_and_arrive_in_fp32(cycle_view):
    cycle_view.advance(2)
    dtypes = cycle_view.snapshot.dtypes
    assert dtypes["output_gradient"] == torch.float16
    assert dtypes["gradient"] == dtypes["weight"] == dtypes["loss"] == torch.float32


def test_on_a_page_every_second_step_can_be_made_to_be_skipped(batches):
    view = ScalerView(models.digits_classifier(16), batches, cross_entropy)
    moving = {axis.name: axis for axis in states.axes(view)}
    moving["growth_interval"].move(0)
    last = [step.skipped for step in view.timeline.steps[-20:]]
    assert 0.3 < sum(last) / len(last) < 0.7
    moving["growth_interval"].move(9)
    assert sum(step.skipped for step in view.timeline.steps[-20:]) < sum(last) / 2
