"""A training step and the life of a loss scale: what really happens; their stories say what is pressed."""

import pytest
import torch

from amp_lessons._base.text.words import power_of_two
from amp_lessons.course.material import models
from amp_lessons.course.views import CycleView, ScalerView
from amp_lessons.course.views.base import states
from tests.course.views import samples
from tests.course.views.conftest import faults_for_a_phone
from tests.course.views.hands import press

cross_entropy = torch.nn.functional.cross_entropy


def scaler_view(**options):
    return ScalerView(models.digits_classifier(16), samples.batches(), cross_entropy, **options)


def test_a_turned_knob_starts_the_run_again_from_the_same_weights():
    view = scaler_view(steps=12, growth_interval=4)
    first = [step.loss for step in view.timeline.steps]
    press(view, "Train 20 more steps")
    press(view, "Start again")
    assert [step.loss for step in view.timeline.steps] == first
    view._init_exponent.value = 3
    assert view.caption.startswith("12 steps from a scale of 2³: 0 skipped")
    assert view.timeline.grown == (3, 7, 11)


def test_the_curve_ends_where_the_caption_says_that_the_scale_stands():
    view = scaler_view(init_scale=2.0**20, steps=12, growth_interval=4)
    view.inject_overflow()
    last = view.timeline.steps[-1]
    assert last.next_scale == last.scale / 2
    curve = view.picture.figure.axes[0].get_lines()[0]
    assert 2.0 ** curve.get_ydata()[-1] == last.next_scale
    assert f"now stands at {power_of_two(last.next_scale)}" in view.caption


@pytest.mark.parametrize("exponent", [0, 24, 40])
def test_for_a_phone_all_of_a_run_can_be_read_down_to_the_exponents(exponent):
    narrow = scaler_view(init_scale=2.0**exponent, steps=12, growth_interval=4).picture.narrow
    assert list(faults_for_a_phone(narrow)) == []


def test_on_a_page_every_second_step_can_be_made_to_be_skipped():
    view = scaler_view()
    moving = {axis.name: axis for axis in states.axes(view)}
    moving["growth_interval"].move(0)
    skipped = sum(step.skipped for step in view.timeline.steps[-20:])
    assert 6 < skipped < 14
    verdict = f"✓ {skipped} of the last 20 steps were skipped: about every second."
    assert states.page_shown(view)["in_short"] == view.in_short == verdict
    assert f">{verdict}</p>" in view.page.value
    moving["growth_interval"].move(9)
    assert sum(step.skipped for step in view.timeline.steps[-20:]) < skipped / 2
    assert view.in_short.startswith(f"{sum(step.skipped for step in view.timeline.steps[-20:])} of the last")
    assert verdict not in view.page.value


def test_a_clean_step_changes_the_parameters_by_true_gradients_and_a_skipped_one_does_not():
    view = CycleView(models.digits_classifier(16), samples.batches(), cross_entropy)
    start = view.snapshot
    assert start.phase == "forward"
    scaled = view.advance(2)
    assert scaled.dtypes["output_gradient"] == torch.float16
    assert {scaled.dtypes[each] for each in ("gradient", "weight", "loss")} == {torch.float32}
    assert view.advance().gradients == tuple(value / scaled.scale for value in scaled.gradients)
    stepped = view.advance(2).weights
    assert view.caption.startswith("The optimizer stepped")
    assert stepped != start.weights
    view.inject_overflow()
    assert view.advance(7).weights == stepped
    assert view.caption.startswith("The step was skipped")


def test_each_step_can_overflow_and_the_way_back_shows_the_same_run():
    view = CycleView(models.digits_classifier(16), samples.batches(), cross_entropy)
    phase, overflow = states.axes(view)

    def scales():
        at_turns = (0, 6, phase.size - 1)
        return [power_of_two(view.snapshot.scale) for at in at_turns if phase.move(at) is None]

    runs = [scales() for choice in range(overflow.size) if overflow.move(choice) is None]
    assert runs == [["2¹⁶", "2¹⁶", "2¹⁷"], ["2¹⁶", "2¹⁵", "2¹⁵"], ["2¹⁶", "2¹⁶", "2¹⁵"]]
    overflow.move(0)
    assert scales() == runs[0]
