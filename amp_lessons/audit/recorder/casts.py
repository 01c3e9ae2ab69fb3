"""How weights came to be in 16 bits: cast by a call that was heard, or loaded so."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from amp_lessons.audit.recorder.events import Line
from amp_lessons.audit.recorder.places import own_line, place_of
from amp_lessons.audit.recorder.shared import Known, Log, Part
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

_HALVES = frozenset(HALVES.values())


class _Cast(NamedTuple):
    """A call of ``method`` that cast parameters, "" where they came so into their module."""

    parameters: tuple[weakref.ref[nn.Parameter], ...]
    dtype: torch.dtype
    method: str
    line: Line


class CastCalls(Part):
    """Calls that cast a model: ``half``, ``bfloat16`` and ``to``."""

    def __init__(self, log: Log, known: Known) -> None:
        super().__init__(log, known)
        self._casts: list[_Cast] = []

    def cast(self, module: nn.Module, before: torch.dtype | None, method: str) -> None:
        """Record that a method has run on a module; only what changed its dtype is kept."""
        dtype = dtype_of(module)
        if dtype is not None and dtype != before:
            parameters = tuple(weakref.ref(each) for each in module.parameters())
            self._casts.append(_Cast(parameters, dtype, method, own_line()))

    def registered(self, module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        """Record that a module was given a parameter; only one that came in 16 bits is kept."""
        if parameter is not None and parameter.dtype in _HALVES:
            self._casts.append(_Cast((weakref.ref(parameter),), parameter.dtype, "", own_line()))

    def since(self, parameter: Tensor | None) -> Line:
        """Return the line on which a parameter came to its dtype, None if unknown."""
        cast = None if parameter is None else self._cast_of(parameter)
        return None if cast is None else cast.line

    def origin(self, parameter: Tensor, models: Iterable[nn.Module]) -> str:
        """Say how a parameter came to its dtype, in words that follow "they are in bf16"; "" if unknown."""
        cast = self._cast_of(parameter)
        place = None if cast is None else place_of(cast.line)
        where = f" ({place.file}, line {place.line})" if place else ""
        if cast is not None and cast.method:
            return f"since a call of .{cast.method}(){where}"
        loaded = next(filter(None, (_loaded(model, parameter) for model in models)), "")
        return loaded or (f"since they were made{where}" if cast is not None else "")

    def _cast_of(self, parameter: Tensor) -> _Cast | None:
        casts = (cast for cast in reversed(self._casts) if cast.dtype == parameter.dtype)
        return next((c for c in casts if any(each() is parameter for each in c.parameters)), None)


def dtype_of(module: nn.Module) -> torch.dtype | None:
    """Return the dtype of a module's first floating parameter, None without one."""
    return next((each.dtype for each in module.parameters() if each.is_floating_point()), None)


def _loaded(model: nn.Module, parameter: Tensor) -> str:
    """Read from a model of transformers, or one that holds such a model, in which dtype it was loaded."""
    for module in model.modules():
        config = getattr(module, "config", None)
        name = getattr(config, "_name_or_path", "")
        if isinstance(name, str) and name and any(each is parameter for each in module.parameters()):
            loaded = getattr(config, "dtype", None)
            if loaded == parameter.dtype:
                return "since they were loaded: from_pretrained keeps the file's dtype, unless given another"
            return (
                f"since a cast that was not seen: they were loaded in {dtype_name(loaded)}" if loaded else ""
            )
    return ""
