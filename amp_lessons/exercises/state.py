"""The process-wide state that a learner's code can disturb: remember it, and put it back.

A check runs code that may leave autocast on, switch gradients off or replace methods of PyTorch. `Snapshot`
remembers settings and methods; `Snapshot.restore` puts both back and says which of them mattered.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import operator
import os
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from amp_lessons.devices import older_setting


@dataclass(frozen=True)
class Setting:
    """One process-wide setting. Leaving it changed is the learner's mistake when ``mistake`` names it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    mistake: str = ""


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
        Setting(
            lambda: torch.is_autocast_enabled(device_type),
            lambda on: torch.set_autocast_enabled(device_type, on),
            "autocast switched on",
        ),
        Setting(
            lambda: torch.get_autocast_dtype(device_type),
            lambda dtype: torch.set_autocast_dtype(device_type, dtype),
        ),
    ]


def _default_device() -> torch.device | None:
    device = torch.get_default_device()
    return None if device.type == "cpu" else device


def _set_default_device(device: torch.device | None) -> None:
    torch.set_default_device(device)
    if device is None:  # leave nothing where there was nothing: PyTorch 2.9 cannot ask for a default of None
        vars(torch._GLOBAL_DEVICE_CONTEXT).pop("device_context", None)


def _set_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


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
        Setting(_autocast_nesting, _set_autocast_nesting, "an autocast context entered and never left"),
        Setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
        Setting(torch.get_default_dtype, torch.set_default_dtype, "another default dtype"),
        Setting(_default_device, _set_default_device, "another default device"),
        Setting(torch.is_grad_enabled, torch.set_grad_enabled, "gradients switched off"),
        Setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        Setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        Setting(torch.get_num_threads, torch.set_num_threads),
        Setting(lambda: older_setting(torch.get_float32_matmul_precision), _set_matmul_precision),
        Setting(torch.get_rng_state, torch.set_rng_state),
        Setting(_cuda_random, _set_cuda_random),
        Setting(random.getstate, random.setstate),
        Setting(_numpy_random, _set_numpy_random),
        Setting(os.getcwd, os.chdir),
        Setting(os.environ.copy, _set_environment),
        Setting(sys.getrecursionlimit, sys.setrecursionlimit),
        Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        Setting(sys.gettrace, sys.settrace),
        Setting(sys.getprofile, sys.setprofile),
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
        self._settings = [(setting, setting.read()) for setting in _settings()]
        self._methods = [(owner, dict(vars(owner))) for owner in _patchable()]
        self._threads = set(threading.enumerate())

    def restore(self) -> tuple[list[str], list[str]]:
        """Put everything back; return the mistakes left behind and the names of replaced functions."""
        mistakes = []
        # settings first: PyTorch itself replaces functions (torch.Storage) along with some of them
        for setting, before in self._settings:
            if _differ(before, setting.read()):
                setting.write(before)
                mistakes.append(setting.mistake)
        return [mistake for mistake in dict.fromkeys(mistakes) if mistake], self._restore_methods()

    def _restore_methods(self) -> list[str]:
        return [
            f"{owner.__name__}.{name}"
            for owner, before in self._methods
            for name in _restore_owner(owner, before)
        ]

    def new_threads(self) -> list[threading.Thread]:
        """List the threads that were started since, and still run."""
        return [thread for thread in threading.enumerate() if thread not in self._threads]


def _restore_owner(owner: ModuleType | type, before: dict[str, Any]) -> list[str]:
    """Put back what was replaced in one module or class, and return its names."""
    now = vars(owner)
    # there are tens of thousands of names: the comparison that usually finds nothing runs in C
    if not any(map(operator.is_not, map(now.get, before), before.values())) and len(now) == len(before):
        return []
    changed = [n for n, value in before.items() if now.get(n) is not value and _is_code(value)]
    changed = [n for n in changed if not _put_there_by_torch(now.get(n), before[n])]
    for name in changed:
        setattr(owner, name, before[name])
    # modules load names late and classes keep caches; a new function on a class is a patch of what it
    # inherited
    added = [
        name
        for name, value in now.items()
        if name not in before and inspect.isfunction(value) and not _put_there_by_torch(value)
    ]
    added = added if inspect.isclass(owner) else []
    for name in added:
        delattr(owner, name)
    return changed + added
