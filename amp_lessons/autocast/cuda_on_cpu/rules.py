"""CUDA's autocast rules, running on the CPU.

PyTorch keeps one table of autocast kernels per device. Inside ``cuda_rules()`` those of the CPU's entries
that differ are replaced by kernels that follow the policy read from CUDA's table. Leaving the context removes
them, and PyTorch's own entries are back.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons._base.arguments import require, require_device
from amp_lessons._base.whole_process import shared
from amp_lessons.autocast.cast_policy import (
    CUDNN_RNN,
    RECURRENT,
    Entry,
    Policy,
    autocast_key,
    entries,
    map_tensors,
    overload,
    policy,
    tensors_in,
    without_overload,
)
from amp_lessons.autocast.cuda_on_cpu.gpu_kernels import library
from amp_lessons.precisions import HALVES


@dataclass(frozen=True)
class RulesStatus:
    """Whether CPU autocast follows CUDA's rules now, and a sentence that says so."""

    active: bool
    sentence: str


@contextmanager
def cuda_rules(device: str | torch.device | None = None) -> Iterator[RulesStatus]:
    """Make CPU autocast pick dtypes as CUDA autocast does.

    Use it around CPU autocast: ``with cuda_rules(), torch.autocast("cpu", dtype=torch.float16): ...``. Until
    the block ends, however it ends, CPU tensors follow CUDA's rules in this thread. Other threads keep the
    CPU's rules, as autocast itself is a thread's own affair; tensors on a GPU keep the GPU's. Blocks may be
    nested.

    ``device`` is where the tensors of the block live. On a CUDA device, or inside an active
    ``torch.autocast("cuda")``, CUDA's rules apply already: then nothing is changed, and a warning and the
    yielded ``RulesStatus`` say so.

    The kernels remain those of the CPU; only the dtypes they are given are CUDA's. A backward pass that
    recomputes activations (checkpointing) belongs inside the block. Do not enter or leave a first block while
    another thread is in the middle of CPU autocast: PyTorch's table of kernels is shared by all threads.
    """
    if _cuda_is_used(device):
        sentence = "CUDA itself is used here, so its rules apply already; nothing was changed"
        warnings.warn(sentence, UserWarning, stacklevel=3)
        yield RulesStatus(False, sentence)
        return
    sentence = f"CPU autocast follows the CUDA rules of torch {torch.__version__} in this block"
    with _replaced_kernels(), _inside():
        yield RulesStatus(True, sentence)


def region(
    device_type: str, dtype: torch.dtype | None, device: str | torch.device = "cpu"
) -> AbstractContextManager[Any]:
    """Return autocast by the rules of ``device_type`` for tensors on ``device``; without ``dtype``, none.

    CUDA's rules can be had on the CPU (see ``cuda_rules``), those of every other device only on that device.
    Raises ``ValueError`` for a combination that does not exist and for a dtype that is not half precision.
    """
    place = require_device(device, "device").type
    require(device_type, str, "device_type", 'a device type such as "cuda"')
    for name in (device_type, place):
        autocast_key(name)
    if dtype not in (None, *HALVES.values()):
        raise ValueError(
            f"autocast runs in torch.float16 or torch.bfloat16 (None: no autocast), not in {dtype!r:.60}"
        )
    if dtype is None:
        return torch.autocast(place, enabled=False)
    if place == device_type:
        return torch.autocast(place, dtype=dtype)
    if (place, device_type) == ("cpu", "cuda"):
        return _cuda_region_on_cpu(dtype)
    raise ValueError(
        f"tensors on {place} cannot run by the autocast rules of {device_type}, only by their own"
    )


def policy_on_cpu() -> dict[str, Policy]:
    """Return what ``cuda_rules()`` makes of each operation: CUDA's policy, and cuDNN's recurrent layers'."""
    return policy("cuda") | dict.fromkeys(RECURRENT, CUDNN_RNN.policy)


@contextmanager
def _cuda_region_on_cpu(dtype: torch.dtype) -> Iterator[None]:
    with cuda_rules("cpu"), torch.autocast("cpu", dtype=dtype):
        yield


def _cuda_is_used(device: str | torch.device | None) -> bool:
    if device is not None:
        return require_device(device, "device").type == "cuda"
    return torch.cuda.is_available() and torch.is_autocast_enabled("cuda")


class _Here(threading.local):
    """The number of blocks of ``cuda_rules()`` that the current thread is inside of."""

    depth = 0


_here = _Here()


@contextmanager
def _inside() -> Iterator[None]:
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


@shared
@contextmanager
def _replaced_kernels() -> Iterator[None]:
    kernels = {
        name.removeprefix("aten::"): _per_thread(name, kernel) for name, kernel in _replacements().items()
    }
    with library("AutocastCPU", kernels, with_keyset=True), _attention_taken_apart():
        yield


@contextmanager
def _attention_taken_apart() -> Iterator[None]:
    """Keep nn.MultiheadAttention off its fused path, which knows no autocast, as CUDA autocast does."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _replacements() -> dict[str, Kernel]:
    """Return a kernel for each operation that CUDA's rules treat differently from the CPU's own."""
    cuda, cpu = entries("cuda"), entries("cpu")
    kernels = {name: follow_inputs_without_half_kernel(name) for name in cpu if name not in cuda}
    for name, entry in cuda.items():
        if name not in cpu or cpu[name].policy is not entry.policy:
            kernels[name] = kernel_for(entry)
    return kernels | {name: cast_to_float16(name) for name in RECURRENT}


def _per_thread(name: str, kernel: Kernel) -> Kernel:
    """Use ``kernel`` in threads inside ``cuda_rules()``, and what PyTorch had before in all others."""
    if name in entries("cpu"):
        before = torch.library.get_kernel(name, "AutocastCPU").call_boxed
    else:
        before = follow_inputs(name)

    def choose(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return (kernel if _here.depth else before)(keys, *args, **kwargs)

    return choose


# --- autocast kernels for the CPU that follow a given policy, in Python.
#
# Each takes the dispatch keys of a call and its arguments, as PyTorch's own autocast kernels do: cast
# the arguments, then call the operation with autocast out of the way.

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

    Where the CPU has none, it runs in float32 and the result is rounded to the dtype of the inputs. What
    refuses 16 bits itself does so on any device, and here.
    """
    follow = follow_inputs(name)

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        try:
            return follow(keys, *args, **kwargs)
        except NotImplementedError as error:
            dtypes = {tensor.dtype for tensor in tensors_in([args, kwargs]) if _is_eligible(tensor)}
            no_kernel = "not implemented for" in str(error)  # from 2.15 on refusals are of this class too
            if not no_kernel or len(dtypes) != 1 or torch.float32 in dtypes:
                raise
        result = follow(keys, *map_tensors(_to_float32, args), **kwargs)
        return map_tensors(lambda tensor: _to(tensor, *dtypes), result)

    return kernel


def cast_to_float16(name: str) -> Kernel:
    """Cast every eligible argument to float16, whatever autocast's dtype is."""
    return _cast_all(name, lambda tensor: _to(tensor, torch.float16))


def _cast_all(name: str, cast: ChangeTensor) -> Kernel:
    """Cast every eligible argument, then run the operation without autocast."""

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        return _run_cast(name, cast, args, kwargs)

    return kernel


def _promote(entry: Entry) -> Kernel:
    """Cast to the widest dtype among the arguments, float64 aside."""

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        dtypes = [tensor.dtype for tensor in tensors_in([args, kwargs]) if _is_eligible(tensor)]
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
    Policy.LOWER_PRECISION: lambda entry: _cast_all(entry.op, _to_autocast_dtype),
    Policy.FP32: lambda entry: _cast_all(entry.op, _to_float32),
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


def _widest(name: str, dtypes: Iterable[torch.dtype]) -> torch.dtype:
    """Return fp32 if any is; the other 16-bit dtype is refused where none in fp32 stands before it."""
    lower = torch.get_autocast_dtype("cpu")
    widest = lower
    for dtype in dtypes:
        if torch.float32 in (widest, dtype):
            widest = torch.float32
        elif dtype != lower:
            raise RuntimeError(
                f"Unexpected floating ScalarType: {name} got {dtype}, autocast's dtype is {lower}"
            )
    return widest


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
