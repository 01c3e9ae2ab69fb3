"""What of ours runs in a worker, beside the learner's code: calls, and what they leave behind. No answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from amp_lessons import autocast
from amp_lessons.text.describing import describe

_for_ever = ExitStack()


def by_cuda_rules() -> None:
    """Let autocast follow CUDA's rules from here on, in this process."""
    _for_ever.enter_context(autocast.cuda_rules())


def uncallable(value: Any, count: int, keywords: list[str]) -> list[str] | None:
    """Say why a value cannot be called with so many arguments and these keywords; None where it can.

    The first text is "not_a_function" or "signature", the second describes the value or the mismatch.
    """
    if not callable(value):
        return ["not_a_function", describe(value)]
    try:
        inspect.signature(value).bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        return ["signature", str(error)]
    except ValueError:  # a built-in without a signature: calling it will tell
        pass
    return None


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function; return its result, its type in words, its arguments as they are now, what it left."""
    before = _settings()
    result = function(*args, **kwargs)
    after = _settings()
    return {
        "result": result,
        "described": describe(result),
        "args": args,
        "left": [f"{name} {_now(value)}" for name, value in after.items() if value != before[name]],
    }


def _now(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else f"= {value}"


def _settings() -> dict[str, Any]:
    """Return what of PyTorch's settings a function may leave changed, by name."""
    return {
        "gradients": torch.is_grad_enabled(),
        "autocast for CPU": torch.is_autocast_enabled("cpu"),
        "autocast for CUDA": torch.is_autocast_enabled("cuda"),
        "the default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the number of threads": torch.get_num_threads(),
        "anomaly detection": torch.is_anomaly_enabled(),
    }
