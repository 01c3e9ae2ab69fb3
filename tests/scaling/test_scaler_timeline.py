"""What the timeline says a GradScaler did, against PyTorch's documentation and a scaler run beside it."""

import copy
from itertools import cycle, islice

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from amp_lessons.scaling import ScalerTimeline

Batch = tuple[Tensor, Tensor]


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))


def loader():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(5, 6, generator=generator), torch.arange(5)) for _ in range(3)]


def record(model=None, **options):
    model = perceptron() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return ScalerTimeline.record(model, loader(), optimizer, cross_entropy, **options)


def test_agrees_with_a_scaler_that_is_read_by_hand():
    model = perceptron()
    reference = copy.deepcopy(model)
    knobs = {"init_scale": 2.0**20, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
    timeline = record(model, steps=14, **knobs)

    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", **knobs)
    for step, (inputs, targets) in zip(timeline.steps, islice(cycle(loader()), 14), strict=True):
        before, weights = scaler.get_scale(), reference[0].weight.clone()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = cross_entropy(reference(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (step.loss, step.scale, step.next_scale) == (loss.item(), before, scaler.get_scale())
        assert step.growth_tracker == scaler.state_dict()["_growth_tracker"]
        assert step.skipped == torch.equal(reference[0].weight, weights)
        assert step.gradients_finite != step.skipped
    assert {step.skipped for step in timeline.steps} == {True, False}  # both happened
    assert any(step.next_scale > step.scale for step in timeline.steps)


def test_an_injected_overflow_skips_that_step_halves_the_scale_and_restarts_the_count():
    timeline = record(steps=8, init_scale=1024.0, growth_interval=3, overflow_at=[4])
    assert timeline.skipped == (4,)
    assert timeline.scales == (1024, 1024, 1024, 2048, 2048, 1024, 1024, 1024)
    assert [step.growth_tracker for step in timeline.steps] == [1, 2, 0, 1, 0, 1, 2, 0]
    assert [step.gradients_finite for step in timeline.steps] == [k != 4 for k in range(8)]
    assert timeline.steps[-1].next_scale == 2048
    assert (timeline.growth_interval, timeline.grown) == (3, (2, 7))


def test_the_scale_has_no_floor():
    timeline = record(steps=6, init_scale=4.0, overflow_at=range(6))
    assert timeline.steps[-1].next_scale == 0.0625
    assert len(timeline.skipped) == 6


def test_steps_can_be_taken_one_by_one():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    timeline = ScalerTimeline(model, loader(), optimizer, cross_entropy, init_scale=8.0)
    assert timeline.steps == ()
    assert timeline.advance().skipped is False
    assert timeline.advance(overflow=True).skipped is True
    assert timeline.advance().scale == 4.0
    assert [step.step for step in timeline.steps] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps is a whole number"),
        ({"steps": 3, "overflow_at": [3]}, "overflow_at names steps from 0 to 2"),
    ],
)
def test_impossible_options_are_explained(options, message):
    with pytest.raises(ValueError, match=message):
        record(**options)


def test_one_number_is_no_collection_of_steps():
    with pytest.raises(TypeError, match=r"overflow_at is a collection of steps, such as \[3\], not 1"):
        record(steps=2, overflow_at=1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_makes_no_difference(mode):
    model, expected = perceptron(), record(steps=3, growth_interval=2)
    with mode():
        assert record(model, steps=3, growth_interval=2).steps == expected.steps  # its batches are made here
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)


def test_a_model_made_under_inference_mode_is_named():
    with torch.inference_mode():
        model = perceptron()
    with pytest.raises(ValueError, match=r"made under torch\.inference_mode"):
        record(model, steps=1)
