"""Autocast kernels for the CPU that follow a given policy, in Python.

Each takes the dispatch keys of a call and its arguments, as PyTorch's own autocast kernels do: cast the
arguments, then call the operation with autocast out of the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast.cast_policy import (
    Entry,
    Policy,
    autocast_key,
    map_tensors,
    overload,
    tensors_in,
    without_overload,
)

_CPU_KEYS = torch._C.DispatchKeySet(autocast_key("cpu"))
_KEYS_AFTER_AUTOCAST = torch._C._dispatch_keyset_full_after(autocast_key("cpu"))

Kernel = Callable[..., Any]
ChangeTensor = Callable[[torch.Tensor], torch.Tensor]


def kernel_for(entry: Entry) -> Kernel:
    """Make a kernel that treats ``entry.op`` on the CPU as its policy says."""
    return _MAKERS[entry.policy](entry)


def follow_inputs(name: str) -> Kernel:
    """Leave the operation alone, and autocast on for the operations it is made of."""
    operation = overload(name)

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return operation.redispatch(keys & _KEYS_AFTER_AUTOCAST, *args, **kwargs)

    return kernel


def follow_inputs_without_half_kernel(name: str) -> Kernel:
    """Leave alone an operation that the CPU's own autocast runs in float32, often for want of a half kernel.

    Where the CPU has none, it runs in float32 and the result is rounded to the dtype of the inputs.
    """
    follow = follow_inputs(name)

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        try:
            return follow(keys, *args, **kwargs)
        except NotImplementedError:
            dtypes = {tensor.dtype for tensor in tensors_in([args, kwargs]) if _is_eligible(tensor)}
            if len(dtypes) != 1 or torch.float32 in dtypes:
                raise
        result = follow(keys, *map_tensors(_to_float32, args), **kwargs)
        return map_tensors(lambda tensor: _to(tensor, *dtypes), result)

    return kernel


def cast_to_float16(name: str) -> Kernel:
    """Cast every eligible argument to float16, whatever autocast's dtype is."""
    return _cast_all(name, lambda tensor: _to(tensor, torch.float16))


def _lower_precision(entry: Entry) -> Kernel:
    return _cast_all(entry.op, _to_autocast_dtype)


def _fp32(entry: Entry) -> Kernel:
    return _cast_all(entry.op, _to_float32)


def _cast_all(name: str, cast: ChangeTensor) -> Kernel:
    """Cast every eligible argument, then run the operation without autocast."""

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return _run_cast(name, cast, args, kwargs)

    return kernel


def _promote(entry: Entry) -> Kernel:
    """Cast to the widest dtype among the arguments, float64 aside."""

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        dtypes = {tensor.dtype for tensor in tensors_in([args, kwargs]) if _is_eligible(tensor)}
        widest = _widest(entry.op, dtypes)
        return _run_cast(entry.op, lambda tensor: _to(tensor, widest), args, kwargs)

    return kernel


def _set_dtype(entry: Entry) -> Kernel:
    """Ask for a float32 result, unless the caller asked for a dtype or the first argument is not eligible."""
    operation = overload(entry.op)
    place = [argument.name for argument in operation._schema.arguments].index("dtype")

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        asked = args[place] if len(args) > place else kwargs.get("dtype")
        with torch._C._ExcludeDispatchKeyGuard(_CPU_KEYS):
            if asked is None and _is_eligible(args[0]):
                return operation(*args[:place], **{**kwargs, "dtype": torch.float32})
            return operation(*args, **kwargs)

    return kernel


def _append_dtype(entry: Entry) -> Kernel:
    """Call the overload that takes a dtype: float32, or the first argument's own if that is not eligible."""
    all_overloads = getattr(torch.ops.aten, without_overload(entry.op).removeprefix("aten::"))

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU_KEYS):
            dtype = torch.float32 if _is_eligible(args[0]) else args[0].dtype
            return all_overloads(*args, **kwargs, dtype=dtype)

    return kernel


def _banned(entry: Entry) -> Kernel:
    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(entry.message)

    return kernel


_MAKERS: dict[Policy, Callable[[Entry], Kernel]] = {
    Policy.LOWER_PRECISION: _lower_precision,
    Policy.FP32: _fp32,
    Policy.FP32_SET_OPT_DTYPE: _set_dtype,
    Policy.FP32_APPEND_DTYPE: _append_dtype,
    Policy.PROMOTE: _promote,
    Policy.BANNED: _banned,
}


def _run_cast(name: str, cast: ChangeTensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(_CPU_KEYS):
        cast_kwargs = {key: map_tensors(cast, value) for key, value in kwargs.items()}
        return overload(name)(*map_tensors(cast, args), **cast_kwargs)


def _is_eligible(tensor: torch.Tensor) -> bool:
    """Say whether autocast casts it at all: floating CPU tensors other than float64."""
    return tensor.is_floating_point() and tensor.dtype is not torch.float64 and tensor.device.type == "cpu"


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if _is_eligible(tensor) else tensor


def _to_float32(tensor: torch.Tensor) -> torch.Tensor:
    return _to(tensor, torch.float32)


def _widest(name: str, dtypes: set[torch.dtype]) -> torch.dtype:
    lower = torch.get_autocast_dtype("cpu")
    if torch.float32 in dtypes:
        return torch.float32
    if dtypes - {lower}:
        raise RuntimeError(
            f"Unexpected floating ScalarType: {name} got {dtypes}, autocast's dtype is {lower}"
        )
    return lower


def _to_autocast_dtype(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.requires_grad and tensor.is_leaf and tensor.dtype is torch.float32:
        return _cast_through_cache(tensor)
    return _to(tensor, torch.get_autocast_dtype("cpu"))


class _CaughtError(Exception):
    """Ends a call that was made only for the sake of its casts."""


class _CatchFirstArgument(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.caught: torch.Tensor | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.addmm.default:
            return func(*args, **(kwargs or {}))
        self.caught = args[0]
        raise _CaughtError


def _cast_through_cache(weight: torch.Tensor) -> torch.Tensor:
    """Cast a parameter to autocast's dtype the way PyTorch does, through its cache of cast weights.

    Python cannot reach that cache, but the CPU's own kernel of ``addmm`` can: it casts its first argument
    through the cache. The call is ended before anything is added or multiplied; nothing is saved for a
    backward pass, because the other two arguments need no gradient.
    """
    nothing = torch.empty(0, 0, dtype=torch.get_autocast_dtype("cpu"), device="cpu")
    addmm = torch.library.get_kernel("aten::addmm", "AutocastCPU")
    catch = _CatchFirstArgument()
    try:
        with catch:
            addmm.call_boxed(_CPU_KEYS, weight, nothing, nothing)
    except _CaughtError:
        pass
    assert catch.caught is not None
    return catch.caught
