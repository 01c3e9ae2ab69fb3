"""Whatever a public function is given: a result, or an error that says what was wrong with which argument."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from amp_lessons import autocast, formats, fp8, measure, parallel, scaling
from amp_lessons.measure import operations, rates, stopwatch

ROOMS: tuple[ModuleType, ...] = (formats, scaling, measure, autocast, fp8, parallel)


class Bare:
    """An object that can do nothing at all: no length, no comparison, no words of its own."""

    __hash__ = None  # type: ignore[assignment]


HOSTILE: dict[str, Any] = {
    "None": None,
    "a text": "nonsense",
    "an empty text": "",
    "bytes": b"\x00",
    "True": True,
    "zero": 0,
    "a negative number": -3,
    "a fraction": 0.5,
    "an enormous int": 10**400,
    "nan": math.nan,
    "infinity": math.inf,
    "a complex number": 1j,
    "a list of texts": ["a", "b"],
    "an empty list": [],
    "a dict": {"a": 1},
    "a set": {1},
    "a class": int,
    "a function of nothing": lambda: None,
    "a dtype": torch.int64,
    "a module": nn.Identity(),
    "an empty tensor": torch.empty(0),
    "a single number's tensor": torch.tensor(1.0),
    "a bool tensor": torch.tensor([True, False]),
    "a complex tensor": torch.tensor([1j]),
    "an int tensor": torch.tensor([[1, 2], [3, 4]]),
    "an object that can do nothing": Bare(),
}

FP16, FP32 = formats.FORMATS["fp16"], formats.FORMATS["fp32"]
BATCH = (torch.ones(2, 2), torch.ones(2, 2))
MODEL = nn.Linear(2, 2)
MATRIX = torch.ones(2, 2)
QUANTIZED = fp8.quantize(MATRIX, fp8.Cast())


def total(outputs: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return outputs.sum()


class Writer(nn.Module):
    """Writes nothing, and keeps a key of width 2 for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(past_key_values=[torch.ones(1, 1, input_ids.shape[1], 2)])


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for room in ROOMS:
        for name in room.__all__:
            if inspect.isfunction(getattr(room, name)):
                yield f"{room.__name__.rpartition('.')[2]}.{name}", getattr(room, name)


FUNCTIONS = dict(public_functions())

# What is a good value of an argument, by its name
GOOD_VALUES: tuple[tuple[str, Any], ...] = (
    ("a approximate b exact gradients increments inputs left right tensor tensors weight x", MATRIX),
    ("accumulator element float_format operands", FP16),
    ("float_formats", [FP16]),
    ("scaled_format", formats.BLOCK_FORMATS["mxfp4"]),
    ("accumulation", fp8.FP32),
    ("cast", fp8.Cast(stochastic=True)),
    ("history", fp8.AmaxHistory(2)),
    ("amax", torch.ones(1)),
    ("bias", torch.ones(2)),
    ("generator", torch.Generator()),
    ("model", MODEL),
    ("batch", BATCH),
    ("parameters", list(MODEL.parameters())),
    ("backward loss_fn", total),
    ("optimizer", torch.optim.AdamW),
    ("sheet", measure.GPUS["T4"]),
    ("dtype", torch.float16),
    ("param_dtype", torch.bfloat16),
    ("reduce_dtype weight_dtype", torch.float32),
    ("device other", "cpu"),
    ("device_type one", "cuda"),
    ("device_types", ("cuda", "cpu")),
    ("precision_name rule", "fp32"),
    ("precisions", ["fp32"]),
    ("known_peaks", {}),
    ("plan", None),
    ("units", []),
    ("names", [""]),
    ("keep", ("head",)),
    ("inner_dimensions", [1, 2]),
    ("operations", ["addition"]),
    ("sizes", [64]),
    ("fn step synchronize", lambda *_: None),
    ("fns", {"a": lambda: None}),
    ("make_inputs", lambda batch: torch.ones(batch, 2)),
    ("algorithm", "ring"),
    ("collective", "all-reduce"),
    ("convention", "zero"),
    ("engine", "auto"),
    ("layer", ""),
    ("method", "stochastic"),
    ("name", "fp16"),
    ("op", "mean"),
    ("recipe", "mxfp8"),
    ("search", "soft"),
    ("stage", "zero3"),
    ("strategy", "fsdp2"),
    ("text", "0.1"),
    ("count differing positive", True),
    ("tf32", False),
    ("longest_call_ms start", 1.0),
    ("growth_factor init_scale scale", 2.0),
    ("backoff_factor noise tolerance update value", 0.1),
    ("seconds seconds_per_point", 1e-9),
    ("timeout_s", 60.0),
    ("seed warmup", 0),
    ("first threads_per_rank", 1),
    ("gathered_itemsize group growth_interval ranks world_size", 2),
    ("exponent steps", 3),
    ("bits context elements largest tokens", 4),
    ("nbytes size", 8),
    ("gathered_parameters most", 10),
    ("max_samples", 12),
    ("longest", 32),
    ("width", 64),
    ("capacity_bytes", 1000),
)
BY_NAME = {name: value for names, value in GOOD_VALUES for name in names.split()}

# Where a function means something else by it
ELSE: dict[str, dict[str, Any]] = {
    "formats.parse_whole": {"text": "8", "name": "The batch"},
    "scaling.backward_at": {"device_type": "cpu"},
    "scaling.backward_by_layer": {"device_type": "cpu"},
    "scaling.make_scaler": {"device_type": "cpu"},
    "measure.decoding_of": {"model": Writer()},
    "autocast.explain": {"op": "softmax"},
    "autocast.find_islands": {"seconds": 60.0},
    "fp8.convert": {"model": nn.Sequential(nn.Linear(2, 2))},
    "fp8.engines": {"dtype": torch.float32},
    "fp8.hadamard": {"size": 16},
    "fp8.random_hadamard": {"size": 2},
    "fp8.scaled_product": {"left": QUANTIZED, "right": QUANTIZED, "dtype": torch.float32},
    "parallel.growth": {"ranks": [1, 2]},
    "parallel.memory_per_rank": {"parameters": 100},
    "parallel.run": {"fn": int, "world_size": 1},
}
# What the course's own callers hand on, and what is handed on to a model
NOT_ASKED = {"args", "examples", "named_inputs", "norms", "options", "peak_of"}


def good_call(name: str) -> dict[str, Any]:
    """Return a good call of a public function, argument by argument."""
    good = {**BY_NAME, **ELSE.get(name, {})}
    return {
        each: good[each] for each in inspect.signature(FUNCTIONS[name]).parameters if each not in NOT_ASKED
    }


GOOD = {name: good_call(name) for name in FUNCTIONS}


def call(name: str, arguments: dict[str, Any]) -> None:
    """Call a public function; where it is a with statement's, enter its block."""
    named = dict(arguments)
    positional = [named.pop("model"), named.pop("inputs")] if "inputs" in named else []
    result = FUNCTIONS[name](*positional, **named)
    if isinstance(result, AbstractContextManager):
        with result:
            pass


def complaint(name: str, argument: str, value: Any) -> str:
    """Return what is wrong with the answer to a hostile argument; nothing where it is a good one."""
    its_own = callable(value) and callable(GOOD[name][argument])  # a function's own error is its author's
    try:
        call(name, {**GOOD[name], argument: value})
    except (TypeError, ValueError) as error:
        return "" if its_own or names_it(str(error), argument, value) else f"{type(error).__name__}: {error}"
    except RuntimeError as error:
        return "" if argument in MODELS_OWN or its_own else f"RuntimeError: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


# What PyTorch's layers say of an input is theirs: "mat1 and mat2 must have the same dtype"
MODELS_OWN = {"inputs", "batch"}


def names_it(message: str, argument: str, value: Any) -> bool:
    """Whether a message names the argument, or the value, or an item of it, or its type or shape."""
    items = list(value) if isinstance(value, (list, dict, set, bytes)) else []
    tensors = [str(tuple(value.shape)), str(value.dtype)] if isinstance(value, torch.Tensor) else []
    named = [words(each)[:20] for words in (repr, str) for each in (value, *items)]
    named += [type(each).__name__ for each in (value, *items)]
    as_word = rf"\b({argument}|{argument.replace('_', ' ')})\b"
    return bool(re.search(as_word, message)) or any(word in message for word in (*named, *tensors))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measure nothing: what is measured is not what is asked here."""
    monkeypatch.setattr(stopwatch._HostClock, "samples_ms", lambda self, fn, samples, calls: [1.0] * samples)
    for room in (rates, operations):
        monkeypatch.setattr(
            room, "random_values", lambda shape, kind, draw: torch.empty(shape, dtype=kind.dtype)
        )
    monkeypatch.setattr(operations, "operation_rates_in_turns", lambda *_, **__: ())
    monkeypatch.setattr(rates, "_product_sizes", lambda place: [8])
    monkeypatch.setattr(rates, "_copy_sizes", lambda place: [64])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", [name for name in GOOD if name != "formats.tf32_product"])
def test_the_good_call_is_good(name: str) -> None:
    call(name, GOOD[name])


@pytest.mark.parametrize(
    ("name", "argument"), [(name, argument) for name, good in GOOD.items() for argument in good]
)
def test_hostile_arguments_are_refused_in_words(name: str, argument: str) -> None:
    complaints = {what: complaint(name, argument, value) for what, value in HOSTILE.items()}
    told = {what: said for what, said in complaints.items() if said}
    assert not told
