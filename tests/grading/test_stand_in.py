"""A check that asks another process comes to the same verdict as one that has the function itself."""

from __future__ import annotations

import json
import math
from importlib import import_module

import numpy as np
import pytest
import torch

from amp_lessons.exercises import checking, shelf
from amp_lessons.grading import there
from amp_lessons.grading.judging import BY_PROXY, StandIn
from amp_lessons.grading.plain_data import UnreadableError, decoded, encoded
from amp_lessons.grading.processes import Walled


class OverHere(Walled):
    """What the other process does, in this one."""

    def __init__(self, attempt):
        self._attempt = attempt

    def send(self, message):
        self._call = json.loads(json.dumps(message))

    def receive(self, limit_s):
        return json.loads(json.dumps(there._answer(self._attempt, self._call)))


def stand_in(attempt):
    described = there._described(attempt)
    if "value" in described:
        return decoded(described["value"])
    return StandIn(OverHere(attempt), described["parameters"], 10.0)


def sample():
    for exercise_id in sorted(BY_PROXY):
        table = import_module(f"amp_lessons.exercises.{exercise_id}.attempts").TABLE
        attempts = {**{name: each[2] for name, each in table.wrong.items()}}
        attempts |= {name: each[1] for name, each in table.right.items()}
        for name, attempt in attempts.items():
            yield pytest.param(exercise_id, attempt, id=f"{exercise_id}-{name}")


# what an attempt leaves behind in its own process is not looked for
LEFT_ALONE = {"patches_torch", "leaves_state_behind", "ends_or_blocks_the_process"}


@pytest.mark.few
@pytest.mark.parametrize(("exercise_id", "attempt"), list(sample()))
def test_both_come_to_the_same_verdict(exercise_id, attempt):
    exercise = shelf.find(exercise_id)
    direct = checking.examine(exercise, attempt, 20.0, "auto")
    asked = checking.examine(exercise, stand_in(attempt), 20.0, "auto")
    codes = [each.findings[0].code for each in (direct, asked)]
    if codes[0] in LEFT_ALONE:
        return
    assert direct.passed == asked.passed, (str(direct), str(asked))
    # another type that stands for an int arrives as one, so there is nothing to remark on
    assert codes[0] == codes[1] or direct.passed, (str(direct), str(asked))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, -(2**70), 0.1, math.inf, -0.0, "text", [1, (2.0, "x")], {"a": [1]}, ..., torch.float16],
)
def test_plain_values_arrive_as_they_are(value):
    arrived = decoded(json.loads(json.dumps(encoded(value))))
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.empty(0, 3),
        np.float32(0.1),
    ],
)
def test_numbers_of_libraries_arrive_as_they_are(value):
    arrived = decoded(json.loads(json.dumps(encoded(value))))
    assert arrived.dtype == value.dtype
    assert arrived.shape == value.shape
    assert bool((arrived == value).all())


def test_an_object_that_says_it_is_equal_arrives_as_a_number_or_as_nothing():
    class Equal(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

    assert decoded(encoded(Equal(2.0))) != 3.0
    assert decoded(encoded(object())) != object()


@pytest.mark.parametrize(
    "message",
    [
        [],
        {"list": 3},
        {"int": "x"},
        {"tensor": ["float32", [10**12], ""]},
        {"tensor": ["float32", [3], "AAAA"]},
        {"tensor": ["load", [1], "AAAAAA=="]},
        {"numpy": ["O", "AAAAAAAAAAA="]},
        {"dict": [[{"list": []}, None]]},
        {"eval": "1"},
        {"int": "1", "text": ""},
    ],
)
def test_what_is_no_value_is_refused(message):
    with pytest.raises(UnreadableError):
        decoded(message)
