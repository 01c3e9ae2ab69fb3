"""The process-wide state that a learner's code can disturb, or depend on: set it, remember it, put it back.

A check runs code that may leave autocast on, switch gradients off or replace methods of PyTorch. ``Snapshot``
remembers settings and methods; ``Snapshot.restore`` puts both back and says which of them mattered. The
kernel that asks for the check may have autocast on or gradients off itself: ``neutral`` lets every check
begin alike.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import inspect
import operator
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.overrides
import torch.utils._device

from amp_lessons.devices import FP32_SWITCHES, MATMUL_SWITCH

_AS_IT_IS = object()


@dataclass(frozen=True)
class Setting:
    """One process-wide setting. Leaving it changed is the learner's mistake when ``mistake`` names it.

    A check begins with ``neutral``, PyTorch's own default, where a verdict could depend on the setting.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    neutral: Any = _AS_IT_IS
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


def _autocast_settings(device_type: str, dtype: torch.dtype) -> list[Setting]:
    return [
        Setting(
            lambda: torch.is_autocast_enabled(device_type),
            lambda on: torch.set_autocast_enabled(device_type, on),
            neutral=False,
            mistake="autocast switched on or off",
        ),
        Setting(
            lambda: torch.get_autocast_dtype(device_type),
            lambda dtype: torch.set_autocast_dtype(device_type, dtype),
            neutral=dtype,
            mistake="another default dtype of autocast",
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


def _fp32_products() -> list[Setting]:
    """Make a setting of each switch; to write the neutral value of one makes its newer ones neutral too."""
    return [
        Setting(
            switch.read,
            switch.write,
            "highest" if switch is MATMUL_SWITCH else _AS_IT_IS,
            "another precision of fp32 products",
        )
        for switch in FP32_SWITCHES
    ]


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
        *_autocast_settings("cpu", torch.bfloat16),
        *_autocast_settings("cuda", torch.float16),
        Setting(_autocast_nesting, _set_autocast_nesting, 0, "an autocast context entered and never left"),
        Setting(
            torch.is_autocast_cache_enabled,
            torch.set_autocast_cache_enabled,
            True,
            "autocast's cache switched off",
        ),
        Setting(torch.get_default_dtype, torch.set_default_dtype, torch.float32, "another default dtype"),
        Setting(_default_device, _set_default_device, mistake="another default device"),
        Setting(_device_contexts, _set_device_contexts, ([], None, None)),
        Setting(torch.is_grad_enabled, torch.set_grad_enabled, True, "gradients switched off"),
        Setting(_anomaly_detection, lambda on: torch.autograd.set_detect_anomaly(*on), (False, True)),
        Setting(_determinism, _set_determinism, (False, False), "deterministic algorithms switched on"),
        Setting(_benchmarks, _set_benchmarks, mistake="cudnn.benchmark switched on or off"),
        # tensors are tiny: a pool of threads, which wakes up for every operation, costs more than it brings
        Setting(torch.get_num_threads, torch.set_num_threads, 1),
        *_fp32_products(),
        Setting(_flushes_denormals, torch.set_flush_denormal, False, "subnormal numbers flushed to zero"),
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


@contextlib.contextmanager
def neutral() -> Iterator[None]:
    """Begin with neutral settings, whatever this process has set, and put everything back at the end."""
    with torch.inference_mode(False):  # it has no setter, and takes the mode for gradients along
        snapshot = Snapshot()
        try:
            for setting in _settings():
                if setting.neutral is not _AS_IT_IS and _differ(setting.neutral, setting.read()):
                    setting.write(setting.neutral)
            yield
        finally:
            snapshot.restore()


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
    # modules load names late and classes keep caches: only a function that is new on a class is a patch,
    # of what the class inherited
    added = [
        name
        for name, value in now.items()
        if name not in before and inspect.isfunction(value) and not _put_there_by_torch(value)
    ]
    added = added if inspect.isclass(owner) else []
    for name in added:
        delattr(owner, name)
    return changed + added
