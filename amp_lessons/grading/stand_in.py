"""What a check is given in place of a learner's function: it asks the process in which that lives."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from amp_lessons.grading.plain_data import UnreadableError, decoded, encoded, error_named
from amp_lessons.grading.processes import EndedError, Walled


class StandIn:
    """A function that is somewhere else: arguments go there as data, what it returns comes back as data."""

    def __init__(self, there: Walled, parameters: Any, limit_s: float) -> None:
        """Take the description that ``there`` gave of the function's parameters."""
        self._there, self._limit_s = there, limit_s
        self.__signature__ = _signature(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it. Raises what it raised, by name, and RuntimeError where its process has ended."""
        try:
            self._there.tell({"args": encoded(args), "kwargs": encoded(kwargs)})
            answer = self._there.hear(self._limit_s)
        except EndedError as error:
            raise RuntimeError(f"its process ended: {error}") from None
        try:
            return _taken(answer, args)
        except (UnreadableError, KeyError, TypeError, IndexError) as error:
            if isinstance(answer, dict) and "raised" in answer:
                raise
            raise RuntimeError("its process answered what no function returns") from error


def _taken(answer: dict[str, Any], args: tuple[Any, ...]) -> Any:
    _change(args, decoded(answer["args"]))
    if "raised" in answer:
        name, text, line = map(str, answer["raised"])
        raise error_named(name, f"{text} ({line})" if line and name != "NotImplementedError" else text)
    return decoded(answer["returned"])


def _change(here: Any, there: Any) -> None:
    """Let what the function did to its arguments be seen in them: a check looks for it."""
    if isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor):
        if here.shape == there.shape and here.dtype == there.dtype:
            with torch.no_grad():
                here.copy_(there)
    elif isinstance(here, list | tuple) and isinstance(there, list | tuple):
        for one, other in zip(here, there, strict=False):
            _change(one, other)


def _signature(parameters: Any) -> inspect.Signature:
    """Make a signature; what is none is one that takes anything."""
    anything = [["args", 2, False], ["kwargs", 4, False]]
    for each in (parameters, anything):
        try:
            return inspect.Signature([_parameter(*one) for one in each])
        except (TypeError, ValueError):
            continue
    raise AssertionError("unreachable")


def _parameter(name: str, kind: int, has_default: bool) -> inspect.Parameter:
    kinds = list(inspect._ParameterKind)
    default = None if has_default else inspect.Parameter.empty
    return inspect.Parameter(name, kinds[kind], default=default)
