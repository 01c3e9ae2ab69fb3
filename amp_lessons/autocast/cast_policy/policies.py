"""Which dtype autocast picks for every operation on every device, asked of the installed PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path

import torch

from amp_lessons._base.arguments import require, require_items
from amp_lessons.autocast.cast_policy.dispatcher import (
    AUTOCAST_KEYS,
    UnreadablePyTorchError,
    autocast_key,
    without_overload,
)
from amp_lessons.autocast.cast_policy.observation import has_dtype_argument, observe, takes_dimension_names


class Policy(Enum):
    """Autocast's treatment of one operation; the value is how lessons word it."""

    LOWER_PRECISION = "lower precision"
    FP32 = "fp32"
    FP32_SET_OPT_DTYPE = "fp32 by dtype argument"
    FP32_APPEND_DTYPE = "fp32 by the overload with a dtype"
    PROMOTE = "widest input dtype"
    BANNED = "banned"


@dataclass(frozen=True)
class Entry:
    """One operation of one device's autocast: ``policy``, how that was found out, and a ban's message."""

    op: str
    policy: Policy
    evidence: str
    message: str = ""


# Under which name the header lists operations, in a macro AT_FORALL_… of its own, and what that means.
_HEADER_POLICIES = {
    "lower_precision_fp": Policy.LOWER_PRECISION,
    "fp32": Policy.FP32,
    "fp32_set_opt_dtype": Policy.FP32_SET_OPT_DTYPE,
    "promote": Policy.PROMOTE,
    "fp32_append_dtype": Policy.FP32_APPEND_DTYPE,  # but for this one, whose macro has entries as strings
}
_APPENDING_MACRO = "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE"
_A_DEVICE_TYPE = 'a device type such as "cuda"'
_DEVICES_OF_THE_HEADER = ("cuda", "xpu")

# Kernels are asked with autocast's dtype set to one half type and arguments of the other: every cast shows.
_LOW, _OTHER = torch.float16, torch.bfloat16

# nn.LSTM, nn.GRU and nn.RNN call these. On CUDA they reach cuDNN, through the one wrapper that is not called
# here: it exists in CUDA builds only, and calling it would initialise CUDA. What it does was read, not seen:
# https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/cudnn/AutocastRNN.cpp
# A bf16 input is taken to reach cuDNN as well, as it does from cuDNN 9.13 and compute capability 8.0 on
# (https://github.com/pytorch/pytorch/pull/164411); elsewhere it stays in bf16.
RECURRENT = tuple(
    f"aten::{kind}.{form}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for form in ("input", "data")
)
CUDNN_RNN = Entry(
    "aten::_cudnn_rnn",
    Policy.LOWER_PRECISION,
    "not called: aten/src/ATen/cudnn/AutocastRNN.cpp casts everything to fp16, whatever autocast's dtype",
)


def policy(device_type: str) -> dict[str, Policy]:
    """Name every operation with an autocast kernel for ``device_type`` and what that kernel does.

    ``device_type`` is ``"cuda"``, ``"cpu"``, ``"mps"`` or ``"xpu"``; none of them needs to be present. Keys
    are dispatcher names such as ``"aten::softmax.int"``; an operation that is missing has no autocast kernel
    and runs in the dtype of its inputs. Raises ``ValueError`` for another device and
    ``UnreadablePyTorchError`` where this PyTorch's answers make no sense, rather than guess.
    """
    return {name: entry.policy for name, entry in entries(device_type).items()}


def entries(device_type: str) -> dict[str, Entry]:
    """Like ``policy``, with the evidence for each operation and the message of each ban."""
    return dict(_entries(require(device_type, str, "device_type", _A_DEVICE_TYPE)))


@cache
def _entries(device_type: str) -> dict[str, Entry]:
    names = _kernel_names(device_type)
    by_dimension_name = set(filter(takes_dimension_names, names))
    with _autocast_dtype(device_type, _LOW):
        found = {name: _entry(name, device_type) for name in names if name not in by_dimension_name}
    found |= {name: _entry_of_its_overloads(name, found) for name in sorted(by_dimension_name)}
    return _confirmed_by_header(found) if device_type in _DEVICES_OF_THE_HEADER else found


def _kernel_names(device_type: str) -> list[str]:
    """Names of all operations for which the dispatcher holds an autocast kernel of this device."""
    autocast_key(device_type)
    try:
        names = torch._C._dispatch_get_registrations_for_dispatch_key(AUTOCAST_KEYS[device_type])
    except (AttributeError, RuntimeError) as error:
        raise UnreadablePyTorchError(
            f"torch {torch.__version__} does not list its autocast kernels for {device_type}: {error}"
        ) from error
    if not names:
        raise UnreadablePyTorchError(f"torch {torch.__version__} lists no autocast kernels for {device_type}")
    return sorted(name for name in names if name.startswith("aten::"))


@contextmanager
def _autocast_dtype(device_type: str, dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_autocast_dtype(device_type)
    torch.set_autocast_dtype(device_type, dtype)
    try:
        yield
    finally:
        torch.set_autocast_dtype(device_type, before)


def _entry(name: str, device_type: str) -> Entry:
    if name == CUDNN_RNN.op:
        return CUDNN_RNN
    alone = observe(name, device_type, (_OTHER,))
    if alone.casts and set(alone.casts) == {_LOW}:
        return _entry_by_call(name, Policy.LOWER_PRECISION, "its kernel cast all of them to autocast's dtype")
    if alone.casts and set(alone.casts) == {torch.float32}:
        return _fp32_entry(name, device_type)
    if alone.asked_for_fp32:
        kind = Policy.FP32_SET_OPT_DTYPE if has_dtype_argument(name) else Policy.FP32_APPEND_DTYPE
        return _entry_by_call(name, kind, "its kernel cast nothing and asked the operation for a fp32 result")
    return _promoting_or_banned_entry(name, device_type)


def _fp32_entry(name: str, device_type: str) -> Entry:
    """Tell a kernel that casts to float32 from one that sets a dtype argument, which then makes the cast."""
    if has_dtype_argument(name) and torch.float32 not in observe(name, device_type, (_OTHER,), _OTHER).casts:
        return _entry_by_call(
            name, Policy.FP32_SET_OPT_DTYPE, "the result was fp32 until another dtype was asked for"
        )
    return _entry_by_call(name, Policy.FP32, "its kernel cast all of them to fp32")


def _promoting_or_banned_entry(name: str, device_type: str) -> Entry:
    mixed = observe(name, device_type, (torch.float32, _LOW))
    if torch.float32 in mixed.casts:
        return _entry_by_call(name, Policy.PROMOTE, "one of them fp32, its kernel cast the others to fp32")
    if without_overload(name).removeprefix("aten::") in mixed.refusal:
        return _entry_by_call(name, Policy.BANNED, "its kernel refused to run", _without_stack(mixed.refusal))
    raise UnreadablePyTorchError(
        f"torch {torch.__version__}: autocast kernel of {name} on {device_type} has no known policy: {mixed}"
    )


def _entry_of_its_overloads(name: str, found: Mapping[str, Entry]) -> Entry:
    """Take the policy that all overloads share which number their dimensions instead of naming them."""
    operation = without_overload(name)
    policies = {entry.policy for other, entry in found.items() if without_overload(other) == operation}
    if len(policies) != 1:
        raise UnreadablePyTorchError(
            f"torch {torch.__version__}: {name} names its dimensions and so cannot be asked, and the other "
            f"overloads of {operation} do not agree: {sorted(each.name for each in policies)}"
        )
    return Entry(name, policies.pop(), "not called, for it wants a named tensor: as its other overloads")


def _entry_by_call(name: str, kind: Policy, seen: str, message: str = "") -> Entry:
    return Entry(name, kind, f"called with fake half-precision tensors, {seen}", message)


def _confirmed_by_header(found: dict[str, Entry]) -> dict[str, Entry]:
    """Add the header's word to the evidence; two witnesses that disagree make the table unusable."""
    confirmed = dict(found)
    for name, listed in header_lists().items():
        if name not in found:
            continue
        if found[name].policy is not _HEADER_POLICIES[listed]:
            raise UnreadablePyTorchError(
                f"torch {torch.__version__} contradicts itself on {name}: its header lists it as {listed}, "
                f"its kernel behaves as {found[name].policy.name}"
            )
        evidence = f"{found[name].evidence}; ATen/autocast_mode.h lists it as {listed}"
        confirmed[name] = replace(found[name], evidence=evidence)
    return confirmed


def header_path() -> Path:
    """Return where the installed PyTorch keeps ``ATen/autocast_mode.h``, if it was shipped."""
    return Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def header_lists() -> dict[str, str]:
    """Name the C++ cast policy of every operation in the lists of the header that ships in every wheel.

    Returns a dict such as ``{"aten::softmax.int": "fp32_set_opt_dtype"}``, empty if the header was not
    shipped. The header serves every device that reuses PyTorch's lists (CUDA, XPU); the CPU and MPS have
    lists of their own in C++ files that are not shipped.
    """
    path = header_path()
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    listed: dict[str, str] = {}
    for kind in _HEADER_POLICIES:
        names = re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", _macro_body(text, f"AT_FORALL_{kind.upper()}"))
        listed |= {f"aten::{name}.{overload}".rstrip("."): kind for name, overload in names}
    quoted = re.findall(r'"([\w.]+)"', _macro_body(text, _APPENDING_MACRO))  # such as "norm.Scalar"
    return listed | {f"aten::{name}": "fp32_append_dtype" for name in quoted}


def _macro_body(text: str, macro: str) -> str:
    """Return the lines of ``#define macro(_) ...`` up to the first one that does not end in a backslash."""
    found = re.search(rf"^#define {macro}\(_\)((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _without_stack(refusal: str) -> str:
    """Return PyTorch's message without the C++ stack that some builds append."""
    return refusal.partition("\nException raised from")[0].strip()


def atlas(
    device_types: tuple[str, ...] = ("cuda", "cpu", "mps", "xpu"),
) -> dict[str, dict[str, Policy | None]]:
    """Lay the devices side by side: operation -> device -> policy, None where the device lists it not."""
    device_types = require_items(device_types, str, "device_types", _A_DEVICE_TYPE)
    tables = {device: policy(device) for device in device_types}
    names = sorted({name for table in tables.values() for name in table})
    return {name: {device: tables[device].get(name) for device in device_types} for name in names}


def differences(one: str = "cuda", other: str = "cpu") -> dict[str, tuple[Policy | None, Policy | None]]:
    """Return the operations that two devices treat differently, with both policies (None: in no list)."""
    rows = atlas((one, other))
    return {name: (row[one], row[other]) for name, row in rows.items() if row[one] is not row[other]}
