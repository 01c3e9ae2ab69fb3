"""Races: each run against `training`'s own loops, and both against each other."""

from __future__ import annotations

import math

import pytest
import torch

from amp_lessons import training
from amp_lessons.course.material import models, race
from amp_lessons.course.material.race import Race
from amp_lessons.precisions import HALVES


def run(race, steps):
    for _ in range(steps):
        race.advance()
    return race


@pytest.mark.parametrize("name", race.TASKS)
@pytest.mark.parametrize("dtype", HALVES.values())
def test_both_runs_are_those_of_a_plain_loop_from_the_same_weights(name, dtype):
    steps = 4
    ran, task = run(Race(name, dtype, "cpu"), steps), race.TASKS[name](torch.device("cpu"))
    for runner, precision in ((ran.fp32, None), (ran.amp, dtype)):
        weights = models.digits_classifier(128) if name == "digits" else task.model
        optimizer = torch.optim.SGD(weights.parameters(), lr=task.learning_rate, momentum=0.9)
        loop = training.training_steps(
            weights, task.loader, optimizer, task.loss_fn, 1, device_type="cpu", dtype=precision
        )
        assert runner.losses == [next(loop).loss.item() for _ in range(steps)]
        task = race.TASKS[name](torch.device("cpu"))


def test_it_ends_after_its_steps_and_says_so():
    ended = Race("digits", torch.float16, "cpu")
    while not ended.finished:
        ended.advance()
    assert len(ended.fp32.losses) == len(ended.amp.losses) == ended.step == ended.task.steps
    with pytest.raises(ValueError, match=f"ended after {ended.task.steps} steps"):
        ended.advance()


def test_an_untrained_network_guesses_and_a_trained_one_does_not():
    for name in race.TASKS:
        begun = run(Race(name, torch.bfloat16, "cpu"), 40)
        assert begun.fp32.losses[0] == pytest.approx(begun.task.chance_loss, rel=0.15)
        assert begun.fp32.losses[-1] < 0.8 * begun.task.chance_loss


def test_a_skipped_step_is_listed_and_seconds_are_those_of_computing():
    poisoned = Race("digits", torch.float16, "cpu")
    images, labels = poisoned.task.loader[1]
    poisoned.task.loader[1] = (images * 1e6, labels)
    run(poisoned, 2)
    before = poisoned.amp.seconds
    run(poisoned, 1)
    assert 0 < before < poisoned.amp.seconds
    assert (poisoned.amp.skipped, poisoned.fp32.skipped) == ([1], [])


def test_differences_are_relative_to_fp32_and_the_largest_is_found():
    ran = run(Race("digits", torch.float16, "cpu"), 5)
    ran.fp32.losses[:] = [2.0, 1.0, 0.5, 1.0, 1.0]
    ran.amp.losses[:] = [2.0, 1.1, 0.4, math.nan, math.inf]
    assert ran.differences == [*map(pytest.approx, [0.0, 0.1, 0.2]), math.inf, math.inf]
    largest, step = ran.largest_difference
    assert (largest, step) == (pytest.approx(0.2), 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"task": "chess"}, "digits, character language model"), ({"dtype": torch.float32}, "bfloat16")],
)
def test_what_is_no_race_is_refused_in_words(change, message):
    with pytest.raises(ValueError, match=message):
        Race(**{"task": "digits", "dtype": torch.float16, "device": "cpu"} | change)


def test_lining_up_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    run(Race("character language model", torch.float16, "cpu"), 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", race.TASKS)
def test_on_a_gpu_the_runs_agree_too(name):
    ran = run(Race(name, torch.float16, "cuda"), 20)
    assert ran.fp32.losses[-1] < ran.fp32.losses[0]
    assert ran.largest_difference[0] < 0.05
