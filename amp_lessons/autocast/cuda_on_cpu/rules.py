"""CUDA's autocast rules, running on the CPU.

PyTorch keeps one table of autocast kernels per device. Inside ``cuda_rules()`` those of the CPU's entries
that differ are replaced by kernels that follow the policy read from CUDA's table. Leaving the context removes
them, and PyTorch's own entries are back.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from amp_lessons.arguments import require, require_device
from amp_lessons.autocast.cast_policy import CUDNN_RNN, RECURRENT, Policy, autocast_key, entries, policy
from amp_lessons.autocast.cuda_on_cpu.casting_kernels import (
    Kernel,
    cast_to_float16,
    follow_inputs,
    follow_inputs_without_half_kernel,
    kernel_for,
)
from amp_lessons.autocast.cuda_on_cpu.libraries import library, shared
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
        status = RulesStatus(
            False, "CUDA itself is used here, so its rules apply already; nothing was changed"
        )
        warnings.warn(status.sentence, UserWarning, stacklevel=3)
        yield status
        return
    with _replaced_kernels(), _inside():
        yield RulesStatus(
            True, f"CPU autocast follows the CUDA rules of torch {torch.__version__} in this block"
        )


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


def cuda_rules_apply() -> bool:
    """Return whether the current thread is inside ``cuda_rules()``."""
    return bool(_here.depth)


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
    """How many blocks of ``cuda_rules()`` the current thread is inside of."""

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
