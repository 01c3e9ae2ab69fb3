"""Say in a sentence what autocast does to an operation, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch

from amp_lessons._base.arguments import require
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.autocast.cast_policy.dispatcher import (
    AUTOCAST_KEYS,
    is_composite,
    overload,
    without_overload,
)
from amp_lessons.autocast.cast_policy.policies import RECURRENT, Entry, Policy, atlas, entries
from amp_lessons.formats.dtypes import dtype_name

_NAMES = {"cuda": "CUDA", "cpu": "the CPU", "mps": "MPS", "xpu": "XPU"}
_PREFIXES = (
    *("aten::", "torch.ops.aten.", "torch.Tensor."),
    *("torch.nn.functional.", "nn.functional.", "F.", "torch."),
)


def explain(op: str, device_type: str = "cuda") -> str:
    """Say what autocast does to ``op`` on ``device_type``, and beside it what it does on the CPU.

    Beside the CPU's answer stands CUDA's. ``op`` is a name as in ``"softmax"``, ``"F.softmax"``,
    ``"aten::softmax"`` or ``"aten::softmax.int"``. Raises ``ValueError`` with the nearest names if there is
    no such operation, and for an unknown device.
    """
    variants = _variants(require(op, str, "op", 'the name of an operation, such as "softmax"'))
    name = without_overload(variants[0]).removeprefix("aten::")
    beside = "cuda" if device_type == "cpu" else "cpu"
    here, there = _answer(variants, device_type), _answer(variants, beside)
    if here == there:
        return f"On {_NAMES[device_type]} and on {_NAMES[beside]}, {name} {here}."
    return f"On {_NAMES[device_type]}, {name} {here}. On {_NAMES[beside]} it {there}."


def _variants(op: str) -> list[str]:
    """Return the dispatcher names that ``op`` stands for."""
    bare = bare_name(op)
    base = bare.partition(".")[0]
    known = _names_by_base().get(base, [])
    variants = known if bare == base else [name for name in known if name == f"aten::{bare}"]
    if not variants:
        public = [name for name in _names_by_base() if not name.startswith("_")]
        raise ValueError(f"no ATen operation is called {op!r}; {did_you_mean(base, public)}")
    return variants


def bare_name(op: str) -> str:
    """Return the operation's name without what people write before it: ``"F.softmax"`` is ``"softmax"``."""
    return next((op.removeprefix(prefix) for prefix in _PREFIXES if op.startswith(prefix)), op)


@cache
def _names_by_base() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if name.startswith("aten::"):
            names.setdefault(without_overload(name).removeprefix("aten::"), []).append(name)
    return names


def _answer(variants: list[str], device_type: str) -> str:
    """Return what happens to the operation, as the rest of a sentence."""
    table = entries(device_type)
    listed = [table[name] for name in variants if name in table]
    if listed:
        return _listed_answer(listed[0], device_type)
    if device_type == "cuda" and not set(RECURRENT).isdisjoint(variants):
        return (
            "runs in fp16, whatever autocast's dtype: all that cuDNN is given is cast to fp16 (a bf16 input "
            "only from cuDNN 9.13 on; before, it is not given to cuDNN and runs in bf16)"
        )
    return _unlisted_answer(variants)


def _listed_answer(entry: Entry, device_type: str) -> str:
    dtype = dtype_name(torch.get_autocast_dtype(device_type))
    answers = {
        Policy.LOWER_PRECISION: f"runs in autocast's dtype ({dtype} by default): its inputs are cast to it",
        Policy.FP32: "runs in fp32: its inputs are cast to fp32",
        Policy.FP32_SET_OPT_DTYPE: "runs in fp32: autocast sets its dtype argument unless you did",
        Policy.FP32_APPEND_DTYPE: "runs in fp32: autocast asks it for an fp32 result",
        Policy.PROMOTE: "runs in the widest dtype among its inputs: one fp32 makes it fp32",
        Policy.BANNED: "is refused with an error: " + entry.message.partition("\n")[0].rstrip("."),
    }
    return answers[entry.policy]


def _unlisted_answer(variants: list[str]) -> str:
    if all(_writes_its_input(variant) for variant in variants):
        return "is in no list: it writes into a tensor that it is given, whose dtype autocast cannot change"
    follows = "is in no list and follows its inputs: half precision in, half precision out"
    if all(is_composite(variant) or _writes_its_input(variant) for variant in variants):
        return f"{follows}, unless an operation that it is made of is in a list"
    return follows


def _writes_its_input(variant: str) -> bool:
    """Say whether this is an in-place or an ``out=`` form."""
    return overload(variant)._schema.is_mutable


# --- find operations by name and by what autocast does to them, the overloads of one operation together

UNLISTED = "in no list"

_RULES = {
    Policy.LOWER_PRECISION: "lower precision",
    Policy.FP32: "fp32",
    Policy.FP32_SET_OPT_DTYPE: "fp32",
    Policy.FP32_APPEND_DTYPE: "fp32",
    Policy.PROMOTE: "widest input dtype",
    Policy.BANNED: "banned",
    None: UNLISTED,
}

RULES = tuple(dict.fromkeys(_RULES.values()))


@dataclass(frozen=True)
class Operation:
    """One operation, as in ``"softmax"``, and each device's rule for it: one of ``RULES``."""

    name: str
    rules: Mapping[str, str]


def operations(
    search: str = "", *, rule: str | None = None, device_type: str = "cuda", differing: bool = False
) -> tuple[Operation, ...]:
    """List the operations whose name contains ``search``, in alphabetical order; an exact match comes first.

    Listed are those that autocast knows on any device. One that it knows on none is there only if ``search``
    is its exact name. ``rule``, one of ``RULES``, keeps those to which ``device_type`` applies that rule;
    ``differing`` keeps those that CUDA and the CPU treat differently. An operation has the rule of those of
    its overloads that are in a list. Raises ``ValueError`` for a rule or a device that does not exist.
    """
    require(search, str, "search", 'a part of the name of an operation, such as "softmax"')
    require(differing, bool, "differing", "True or False")
    if rule is not None and rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}")
    wanted = bare_name(search.strip()).lower()
    known = _known()
    if device_type not in next(iter(known.values())).rules:
        raise ValueError(f"device_type must be one of {', '.join(AUTOCAST_KEYS)}; got {device_type!r}")
    found = [operation for name, operation in known.items() if wanted in name]
    if wanted and wanted not in known and wanted in _names_by_base():
        found.append(Operation(wanted, dict.fromkeys(next(iter(known.values())).rules, UNLISTED)))
    found.sort(key=lambda operation: (operation.name != wanted, operation.name))
    return tuple(
        operation
        for operation in found
        if rule in (None, operation.rules[device_type])
        and not (differing and operation.rules["cuda"] == operation.rules["cpu"])
    )


@cache
def _known() -> dict[str, Operation]:
    rules: dict[str, dict[str, str]] = {}
    for listed, row in sorted(atlas().items()):
        name = without_overload(listed).removeprefix("aten::")
        merged = rules.setdefault(name, dict.fromkeys(row, UNLISTED))
        merged |= {device: _RULES[policy] for device, policy in row.items() if policy is not None}
    return {name: Operation(name, merged) for name, merged in rules.items()}
