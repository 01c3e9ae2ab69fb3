"""The process-wide state that an attempt run as a script can disturb: remember it, put it back.

An attempt may leave autocast on, switch gradients off or replace methods of PyTorch. ``Snapshot`` remembers
settings and methods; ``Snapshot.restore`` puts both back.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import operator
import os
import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.overrides
import torch.utils._device

from amp_lessons.devices import FP32_SWITCHES

Setting = tuple[Callable[[], Any], Callable[[Any], object]]
"""What reads one process-wide setting, and what writes it."""


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _set_autocast_nesting(depth: int) -> None:
    while _autocast_nesting() > depth:
        torch.autocast_decrement_nesting()
    while _autocast_nesting() < depth:
        torch.autocast_increment_nesting()
    if depth == 0:
        torch.clear_autocast_cache()


def _autocast_settings(device_type: str) -> list[Setting]:
    return [
        (
            lambda: torch.is_autocast_enabled(device_type),
            lambda on: torch.set_autocast_enabled(device_type, on),
        ),
        (
            lambda: torch.get_autocast_dtype(device_type),
            lambda dtype: torch.set_autocast_dtype(device_type, dtype),
        ),
    ]


def _default_device() -> torch.device | None:
    try:
        device = torch.get_default_device()
    except AttributeError:  # PyTorch 2.9 cannot ask for a default of None
        return None
    return None if device.type == "cpu" else device


def _set_default_device(device: torch.device | None) -> None:
    torch.set_default_device(device)
    if device is None:  # leave nothing where there was nothing, which PyTorch 2.9 can be asked for
        vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def _device_contexts() -> tuple[Any, ...]:
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    modes = torch.overrides._get_current_function_mode_stack()
    return modes, default, torch.utils._device.CURRENT_DEVICE


def _set_device_contexts(contexts: tuple[Any, ...]) -> None:
    """Put the very objects back: a ``with torch.device(…)`` around the check wants to find its own."""
    modes, default, torch.utils._device.CURRENT_DEVICE = contexts
    vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)
    if default is not None:
        torch._GLOBAL_DEVICE_CONTEXT.device_context = default
    for _ in torch.overrides._get_current_function_mode_stack():
        torch.overrides._pop_mode()
    for mode in modes:
        torch.overrides._push_mode(mode)


def _anomaly_detection() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _determinism() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _set_determinism(mode: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])


def _benchmarks() -> bool:
    return torch.backends.cudnn.benchmark


def _set_benchmarks(on: bool) -> None:
    torch.backends.cudnn.benchmark = on


def _flushes_denormals() -> bool:
    return sys.float_info.min / 2 == 0.0


def _set_environment(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def _numpy_random() -> Any:
    numpy = sys.modules.get("numpy")
    return numpy.random.get_state() if numpy else None


def _set_numpy_random(state: Any) -> None:
    if state is not None:
        sys.modules["numpy"].random.set_state(state)


def _cuda_random() -> list[torch.Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _set_cuda_random(states: list[torch.Tensor]) -> None:
    if states:
        torch.cuda.set_rng_state_all(states)


def _settings() -> list[Setting]:
    return [
        *_autocast_settings("cpu"),
        *_autocast_settings("cuda"),
        (_autocast_nesting, _set_autocast_nesting),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        (torch.get_default_dtype, torch.set_default_dtype),
        (_default_device, _set_default_device),
        (_device_contexts, _set_device_contexts),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (_anomaly_detection, lambda on: torch.autograd.set_detect_anomaly(*on)),
        (_determinism, _set_determinism),
        (_benchmarks, _set_benchmarks),
        (torch.get_num_threads, torch.set_num_threads),
        *((switch.read, switch.write) for switch in FP32_SWITCHES),
        (_flushes_denormals, torch.set_flush_denormal),
        (torch.get_rng_state, torch.set_rng_state),
        (_cuda_random, _set_cuda_random),
        (random.getstate, random.setstate),
        (_numpy_random, _set_numpy_random),
        (os.getcwd, os.chdir),
        (os.environ.copy, _set_environment),
        (sys.getrecursionlimit, sys.setrecursionlimit),
        (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        (sys.gettrace, sys.settrace),
        (sys.getprofile, sys.setprofile),
    ]


def _differ(before: Any, now: Any) -> bool:
    if isinstance(before, torch.Tensor):
        return not torch.equal(before, now)
    try:
        return bool(before != now)
    except (ValueError, RuntimeError):  # arrays and tensors inside a generator's state
        return True


@cache
def _patchable() -> list[ModuleType | type]:
    """List the modules whose functions, and the classes whose methods, a learner might replace."""
    modules: list[ModuleType] = [
        torch,
        torch._C._nn,
        torch.amp,
        torch.amp.autocast_mode,
        torch.amp.grad_scaler,
        torch.autograd,
        torch.cuda,
        torch.cuda.amp,
        torch.nn,
        torch.nn.functional,
        torch.nn.utils,
        torch.optim,
    ]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__.startswith("torch")
    }
    return [builtins, os, *modules, *classes]


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, (property, classmethod))


_COMPILER = str(Path(torch.__file__).parent / "_dynamo")


def _put_there_by_torch(now: Any, before: Any = None) -> bool:
    """Whether PyTorch itself replaced ``before``.

    It wraps ``step`` when an optimizer is first made, and more when something is first compiled.
    """
    code = getattr(now, "__code__", None)
    if code is not None and code.co_filename.startswith(_COMPILER):
        return True
    return getattr(now, "hooked", False) and (before is None or getattr(now, "__wrapped__", None) is before)


class Snapshot:
    """Settings and methods as they were when the snapshot was taken."""

    def __init__(self) -> None:
        self._settings = [(read, write, read()) for read, write in _settings()]
        self._methods = [(owner, dict(vars(owner))) for owner in _patchable()]

    def restore(self) -> None:
        """Put everything back."""
        # settings first: PyTorch itself replaces functions (torch.Storage) along with some of them
        for read, write, before in self._settings:
            if _differ(before, read()):
                write(before)
        for owner, methods in self._methods:
            _restore_owner(owner, methods)


def _restore_owner(owner: ModuleType | type, before: dict[str, Any]) -> None:
    """Put back what was replaced in one module or class."""
    now = vars(owner)
    # there are tens of thousands of names: the comparison that usually finds nothing runs in C
    if not any(map(operator.is_not, map(now.get, before), before.values())) and len(now) == len(before):
        return
    changed = [n for n, value in before.items() if now.get(n) is not value and _is_code(value)]
    for name in changed:
        if not _put_there_by_torch(now.get(name), before[name]):
            setattr(owner, name, before[name])
    # modules load names late and classes keep caches: only a function that is new on a class is a patch,
    # of what the class inherited
    added = [
        name
        for name, value in now.items()
        if name not in before and inspect.isfunction(value) and not _put_there_by_torch(value)
    ]
    for name in added if inspect.isclass(owner) else []:
        delattr(owner, name)
