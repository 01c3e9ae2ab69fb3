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
QUICK = {"device": "cpu", "seconds": 1e-9}


def mean_error(outputs: Any, targets: Any) -> torch.Tensor:
    return nn.functional.mse_loss(outputs, targets)


class Writer(nn.Module):
    """Writes nothing, and keeps a key of width 2 for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))

    def forward(self, input_ids: torch.Tensor, use_cache: bool) -> SimpleNamespace:
        return SimpleNamespace(past_key_values=[torch.ones(1, 1, input_ids.shape[1], 2)])


# A good call of each public function, argument by argument: each is replaced in turn by what is hostile
GOOD: dict[str, dict[str, Any]] = {
    "formats.by_groups": {"weight": MATRIX, "bits": 4, "group": 2},
    "formats.parse": {"text": "0.1", "float_format": FP16},
    "formats.parse_whole": {"text": "8", "name": "The batch", "most": 10},
    "formats.per_tensor": {"element": FP16},
    "formats.product": {"a": MATRIX, "b": MATRIX, "operands": FP16, "accumulator": FP16},
    "formats.product_errors": {
        "a": MATRIX,
        "b": MATRIX,
        "operands": FP16,
        "accumulator": FP16,
        "inner_dimensions": [1, 2],
    },
    "formats.relative_error": {"approximate": MATRIX, "exact": MATRIX},
    "formats.repeated_update": {"update": 0.1, "float_format": FP16, "steps": 3, "start": 1.0},
    "formats.represent": {"value": 0.1, "float_format": FP16},
    "formats.running_sum": {
        "increments": MATRIX,
        "float_format": FP16,
        "method": "stochastic",
        "start": 0.0,
        "generator": torch.Generator(),
    },
    "formats.scaling_error": {"x": MATRIX, "scaled_format": formats.BLOCK_FORMATS["mxfp4"]},
    "formats.side_by_side": {"value": 0.1, "float_formats": [FP16]},
    "formats.tf32_product": {"a": MATRIX, "b": MATRIX},
    "scaling.backward_at": {
        "model": MODEL,
        "batch": BATCH,
        "loss_fn": mean_error,
        "scale": 2.0,
        "dtype": torch.float16,
        "device_type": "cpu",
    },
    "scaling.backward_by_layer": {
        "model": MODEL,
        "batch": BATCH,
        "loss_fn": mean_error,
        "scale": 2.0,
        "dtype": torch.float16,
        "device_type": "cpu",
    },
    "scaling.census": {"gradients": MATRIX, "dtype": torch.float16, "scale": 2.0},
    "scaling.gradients": {"model": MODEL, "batch": BATCH, "loss_fn": mean_error},
    "scaling.make_scaler": {
        "device_type": "cpu",
        "init_scale": 2.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2,
    },
    "scaling.parse_scale": {"text": "2^16"},
    "measure.copy_rates": {"precision_name": "fp32", "sizes": [64], **QUICK},
    "measure.decoding_of": {"model": Writer(), "context": 4},
    "measure.fp32_products": {"tf32": False},
    "measure.measure_memory": {
        "model": MODEL,
        "inputs": MATRIX,
        "precision_name": "fp32",
        "optimizer": torch.optim.AdamW,
        "loss_fn": torch.sum,
    },
    "measure.operation_rates": {
        "precision_name": "fp32",
        "tokens": 4,
        "width": 64,
        "operations": ["addition"],
        **QUICK,
    },
    "measure.optimizer_bytes": {
        "optimizer": torch.optim.AdamW,
        "parameters": list(MODEL.parameters()),
        "device_type": "cuda",
    },
    "measure.precision": {"name": "fp16"},
    "measure.precisions_on": {"device": "cpu"},
    "measure.predict_bound": {
        "model": MODEL,
        "inputs": MATRIX,
        "sheet": measure.GPUS["T4"],
        "precision_name": "fp32",
    },
    "measure.predict_largest_batch": {
        "model": MODEL,
        "make_inputs": lambda batch: torch.ones(batch, 2),
        "capacity_bytes": 1000,
        "known_peaks": {},
        "first": 1,
    },
    "measure.predict_memory": {
        "model": MODEL,
        "inputs": MATRIX,
        "precision_name": "fp32",
        "optimizer": torch.optim.AdamW,
        "loss_fn": torch.sum,
        "device_type": "cuda",
    },
    "measure.product_intensity": {"size": 8, "precision_name": "fp32"},
    "measure.product_rate": {"size": 8, "precision_name": "fp32", **QUICK},
    "measure.product_rates": {"precision_name": "fp32", "sizes": [8, 16], "longest_call_ms": 1.0, **QUICK},
    "measure.roofline": {"device": "cpu", "precisions": ["fp32"], "seconds_per_point": 1e-9},
    "measure.saved_activation_bytes": {
        "model": MODEL,
        "inputs": MATRIX,
        "dtype": torch.float16,
        "device_type": "cuda",
    },
    "measure.search_largest_batch": {"step": lambda batch: None, "largest": 4},
    "measure.survey": {"device": "cpu", "precisions": ["fp32"], "seconds_per_point": 1e-9},
    "measure.time_step": {
        "fn": lambda: None,
        "synchronize": lambda: None,
        "warmup": 0,
        "max_samples": 12,
        **QUICK,
    },
    "measure.time_steps": {
        "fns": {"a": lambda: None},
        "synchronize": lambda: None,
        "warmup": 0,
        "max_samples": 12,
        **QUICK,
    },
    "autocast.atlas": {"device_types": ("cuda", "cpu")},
    "autocast.cuda_rules": {"device": "cpu"},
    "autocast.differences": {"one": "cuda", "other": "cpu"},
    "autocast.entries": {"device_type": "cuda"},
    "autocast.explain": {"op": "softmax", "device_type": "cuda"},
    "autocast.fake_copy": {"model": MODEL},
    "autocast.fake_tensors": {},
    "autocast.find_islands": {
        "model": MODEL,
        "inputs": MATRIX,
        "dtype": torch.float16,
        "device_type": "cuda",
        "tolerance": 0.1,
        "seconds": 60.0,
    },
    "autocast.in_fp32": {"model": MODEL, "names": [""]},
    "autocast.operations": {"search": "soft", "rule": "fp32", "device_type": "cuda", "differing": True},
    "autocast.policy": {"device_type": "cuda"},
    "autocast.quick_products": {},
    "autocast.record": {
        "model": MODEL,
        "inputs": MATRIX,
        "device_type": "cuda",
        "dtype": torch.float16,
        "backward": lambda output: output.sum(),
    },
    "autocast.region": {"device_type": "cuda", "dtype": torch.float16, "device": "cpu"},
    "fp8.accumulate": {"left": MATRIX, "right": MATRIX, "accumulation": fp8.FP32},
    "fp8.convert": {
        "model": nn.Sequential(nn.Linear(2, 2)),
        "recipe": "mxfp8",
        "keep": ("head",),
        "engine": "auto",
    },
    "fp8.engines": {
        "recipe": "mxfp8",
        "device": "cpu",
        "dtype": torch.float32,
        "weight_dtype": torch.float32,
    },
    "fp8.fitting_exponent": {"tensor": MATRIX, "element": FP16},
    "fp8.granularities": {"element": FP16},
    "fp8.hadamard": {"size": 16},
    "fp8.linear": {
        "x": MATRIX,
        "weight": MATRIX,
        "bias": torch.ones(2),
        "recipe": "mxfp8",
        "history": fp8.AmaxHistory(2),
        "engine": "auto",
        "generator": torch.Generator(),
        "layer": "",
    },
    "fp8.long_sums": {"longest": 32, "positive": True, "seed": 0},
    "fp8.place": {"tensor": MATRIX, "cast": fp8.Cast()},
    "fp8.place_by_hand": {"tensor": MATRIX, "element": FP16, "exponent": 3},
    "fp8.quantize": {
        "x": MATRIX,
        "cast": fp8.Cast(stochastic=True),
        "amax": torch.ones(1),
        "generator": torch.Generator(),
        "count": True,
    },
    "fp8.random_hadamard": {"x": MATRIX, "size": 2, "seed": 0},
    "fp8.record": {},
    "fp8.scaled_product": {
        "left": QUANTIZED,
        "right": QUANTIZED,
        "accumulation": fp8.FP32,
        "dtype": torch.float32,
        "engine": "auto",
    },
    "fp8.scales": {"amax": torch.ones(1), "cast": fp8.Cast()},
    "parallel.additions": {"ranks": 4, "algorithm": "ring"},
    "parallel.communication": {
        "model": MODEL,
        "inputs": MATRIX,
        "world_size": 2,
        "strategy": "fsdp2",
        "param_dtype": torch.bfloat16,
        "reduce_dtype": torch.float32,
        "units": [],
        "plan": None,
        "loss_fn": torch.sum,
    },
    "parallel.default_reduce_dtype": {},
    "parallel.growth": {
        "tensors": MATRIX,
        "dtype": torch.float16,
        "algorithm": "ring",
        "op": "mean",
        "ranks": [1, 2],
    },
    "parallel.memory_per_rank": {
        "parameters": 100,
        "world_size": 2,
        "stage": "zero3",
        "convention": "zero",
        "gathered_parameters": 10,
        "gathered_itemsize": 2,
    },
    "parallel.rank_gradients": {"ranks": 2, "elements": 4, "noise": 0.1, "seed": 0},
    "parallel.reduce": {"tensors": MATRIX, "dtype": torch.float16, "algorithm": "ring", "op": "mean"},
    "parallel.reduction": {"tensors": MATRIX, "dtype": torch.float16, "algorithm": "ring", "op": "mean"},
    "parallel.run": {"fn": int, "world_size": 1, "timeout_s": 60.0, "threads_per_rank": 1},
    "parallel.sent_bytes": {"collective": "all-reduce", "nbytes": 8, "ranks": 2},
    "parallel.stop": {},
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for room in ROOMS:
        for name in room.__all__:
            if inspect.isfunction(getattr(room, name)):
                yield f"{room.__name__.rpartition('.')[2]}.{name}", getattr(room, name)


FUNCTIONS = dict(public_functions())


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


def test_every_public_function_is_asked() -> None:
    assert set(GOOD) == set(FUNCTIONS)


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
