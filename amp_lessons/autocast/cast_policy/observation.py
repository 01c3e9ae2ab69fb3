"""Ask an autocast kernel what it does, by calling it and watching which casts it makes.

Every device's autocast kernels are compiled into every PyTorch build, also where the device is missing. A
kernel first casts its tensor arguments, then calls the operation. So it is called here with small *fake*
tensors that claim to live on that device, under a dispatch mode that notes the casts and stops the call
before the operation itself would start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from unittest import mock

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast.cast_policy.dispatcher import autocast_key, overload, tensors_in

# The first ``FakeTensorMode`` makes a PyTorch that is built for CUDA, and has no GPU, count eight of them. If
# autograd starts after that, it starts a thread for each, and then no forked child can run a backward pass:
# checks would fail. So one is run before, here: whatever makes fake tensors imports this module first.
if torch.backends.cuda.is_built() and not torch.cuda.is_available():
    with torch.inference_mode(False), torch.enable_grad():
        torch.zeros((), device="cpu", requires_grad=True).backward()

_STAND_INS: dict[str, Any] = {
    "int": 1,
    "SymInt": 1,
    "float": 1.0,
    "bool": False,
    "number": 1,
    "complex": 1,
    "str": "zeros",
    "List[int]": [1],
    "List[SymInt]": [1],
    "List[float]": [1.0],
    "List[bool]": [False],
}


@dataclass(frozen=True)
class Observation:
    """The casts that one autocast kernel was seen to make before its operation started.

    ``casts`` has one entry per floating argument: the dtype it was cast to, or None if it was passed on as it
    was. ``asked_for_fp32`` says that the operation was then called with float32 as an argument. ``refusal``
    is the message of the error with which the kernel refused to go on; ``started`` says that the operation
    itself was reached.
    """

    casts: tuple[torch.dtype | None, ...]
    asked_for_fp32: bool
    started: bool
    refusal: str


class _StopError(Exception):
    """Raised to leave a kernel once it has shown what it casts."""


class _CastWatcher(TorchDispatchMode):
    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self.given = given
        self.casts: list[torch.dtype | None] = [None] * len(given)
        self.asked_for_fp32 = False
        self.started = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":
            return func(*args, **kwargs)
        if func is torch.ops.aten._to_copy.default and (place := self._place(args[0])) is not None:
            self.casts[place] = kwargs["dtype"]
            if self._all_halves_cast():
                raise _StopError
            return func(*args, **kwargs)
        self.started = True
        self.asked_for_fp32 = any(value is torch.float32 for value in (*args, *kwargs.values()))
        raise _StopError

    def _all_halves_cast(self) -> bool:
        pairs = zip(self.given, self.casts, strict=True)
        return all(cast is not None for given, cast in pairs if given.dtype is not torch.float32)

    def _place(self, tensor: torch.Tensor) -> int | None:
        return next((i for i, given in enumerate(self.given) if given is tensor), None)


def has_dtype_argument(name: str) -> bool:
    """Say whether the operation takes the dtype of its result as an optional argument."""
    return any(argument.name == "dtype" for argument in overload(name)._schema.arguments)


def takes_dimension_names(name: str) -> bool:
    """Say whether the operation names a dimension; until 2.12 there were named tensors, which no fake is."""
    arguments = overload(name)._schema.arguments
    return any(argument.name == "dim" and "str" in str(argument.type) for argument in arguments)


def observe(
    name: str, device_type: str, dtypes: tuple[torch.dtype, ...], result_dtype: torch.dtype | None = None
) -> Observation:
    """Call one autocast kernel with fake tensors whose dtypes cycle through ``dtypes``, and say what it did.

    ``result_dtype`` is passed as the operation's own ``dtype`` argument, as a user might.
    """
    operation = overload(name)
    keys = torch._C.DispatchKeySet(autocast_key(device_type))
    refusal = ""
    # Under the caller's inference mode kernels cast nothing that could be seen.
    with torch.inference_mode(False), torch.no_grad(), FakeTensorMode(), _no_device_needed():
        args, kwargs = _arguments(operation._schema, device_type, dtypes)
        if result_dtype is not None:
            kwargs["dtype"] = result_dtype
        watcher = _CastWatcher(list(tensors_in([args, kwargs])))
        with watcher:
            try:
                operation.redispatch(keys, *args, **kwargs)
            except _StopError:
                pass
            except Exception as error:
                refusal = str(error)
    return Observation(tuple(watcher.casts), watcher.asked_for_fp32, watcher.started, refusal)


_alone = threading.Lock()  # two that replaced the same function at once would leave it replaced


@contextmanager
def _no_device_needed() -> Iterator[None]:
    """Keep fake tensors from starting the device that they claim to be on.

    PyTorch 2.11 asks it for a real tensor first wherever there is any GPU: an XPU, too, where there is a
    CUDA GPU alone, and then it fails.
    """
    with _alone, mock.patch.object(fake_tensor, "init_gpu_context", create=True):
        yield


def _arguments(
    schema: Any, device_type: str, dtypes: tuple[torch.dtype, ...]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments of the types in a schema; their values never matter, since the operation never runs."""
    supply = cycle(dtypes)

    def tensor() -> torch.Tensor:
        return torch.empty(2, 2, dtype=next(supply), device=device_type)

    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for argument in schema.arguments:
        kind = str(argument.type)
        if kind == "Tensor":
            value: Any = tensor()
        elif kind == "List[Tensor]":
            value = [tensor(), tensor()]
        elif argument.has_default_value():
            continue
        elif kind == "List[Optional[Tensor]]":
            value = [None]
        else:
            value = None if kind.startswith("Optional[") else _STAND_INS[kind]
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return args, kwargs
