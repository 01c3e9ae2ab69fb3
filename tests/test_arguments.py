"""What is asked of arguments: a refusal says what was given, and what would be right."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from amp_lessons import autocast, formats, measure, scaling
from amp_lessons._base.arguments import (
    require_callable,
    require_device,
    require_items,
    require_number,
    require_whole,
)

FP16 = formats.FORMATS["fp16"]


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (
            lambda: formats.product("a", torch.ones(2, 2), FP16),
            "TypeError: a is a float32 matrix such as torch.randn(4, 4), not str 'a'",
        ),
        (
            lambda: formats.represent(0.1, "fp16"),
            "TypeError: float_format is a number format such as formats.FORMATS[\"fp16\"], not str 'fp16'",
        ),
        (
            lambda: formats.parse(0.1, FP16),
            'TypeError: text is what a learner typed, such as "0.1", not float 0.1',
        ),
        (
            lambda: scaling.parse_scale(None),
            'TypeError: text is what a learner typed, such as "0.1", not None',
        ),
        (
            lambda: measure.time_steps([print], device="cpu"),
            'TypeError: fns is a dict of functions without arguments, such as {"fp32": step}, not list',
        ),
        (
            lambda: measure.optimizer_bytes(torch.optim.AdamW, "weights"),
            "TypeError: parameters is a list or another collection, each item a tensor",
        ),
        (
            lambda: autocast.explain(torch.softmax),
            'TypeError: op is the name of an operation, such as "softmax", not builtin_function_or_method',
        ),
        (
            lambda: measure.operation_rates("fp32", device="cpu", operations=["atention"]),
            "ValueError: no operation is called 'atention'; did you mean attention or addition?",
        ),
    ],
)
def test_a_refusal_says_what_would_be_right(call, refusal):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(refusal)


def test_numbers_of_every_kind_are_numbers():
    for value in (2, 2.0, Fraction(2), np.float32(2), np.int64(2)):
        assert require_number(value, "x", above=0) == 2.0
    assert math.isnan(require_number(math.nan, "x"))
    for value in (0, -1, math.nan, 10**400):
        with pytest.raises(ValueError, match="x is a number above 0"):
            require_number(value, "x", above=0)
    for value in (True, "2", torch.tensor(2.0), 2j, None):
        with pytest.raises(TypeError, match="x is a number above 0, not "):
            require_number(value, "x", above=0)


def test_whole_numbers_are_counted_from_the_least_to_what_pytorch_counts():
    assert require_whole(np.int32(3), "n") == 3
    assert type(require_whole(np.int32(3), "n")) is int
    assert (require_whole(0, "n", least=0), require_whole(2**63 - 1, "n")) == (0, 2**63 - 1)
    for value in (0, -1, 2**63):
        with pytest.raises(ValueError, match="n is a whole number of at least 1"):
            require_whole(value, "n")
    for value in (True, 1.0, "1", None):
        with pytest.raises(TypeError, match="n is a whole number of at least 1, not "):
            require_whole(value, "n")


def test_a_collection_is_no_text_and_no_tensor():
    assert require_items((name for name in "ab"), str, "names", "a name") == ("a", "b")
    for value in ("ab", b"ab", torch.ones(2), 5, None):
        with pytest.raises(TypeError, match="names is a list or another collection, each item a name, not "):
            require_items(value, str, "names", "a name")
    with pytest.raises(TypeError, match="each item of names is a name, not int 1"):
        require_items(["a", 1], str, "names", "a name")


def test_devices_and_functions():
    assert require_device("cuda:1", "device") == torch.device("cuda", 1), "it need not be there"
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        require_device("gpu", "device")
    with pytest.raises(TypeError, match="device is a device such as"):
        require_device(None, "device")
    require_callable(print, "step", "a function")
    with pytest.raises(TypeError, match="step is a function, not int 3"):
        require_callable(3, "step", "a function")
