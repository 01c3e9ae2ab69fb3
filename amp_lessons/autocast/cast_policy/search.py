"""Find operations by name and by what autocast does to them, the overloads of one operation together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from amp_lessons.arguments import require
from amp_lessons.autocast.cast_policy.dispatcher import AUTOCAST_KEYS, without_overload
from amp_lessons.autocast.cast_policy.explanations import bare_name, is_operation
from amp_lessons.autocast.cast_policy.policies import Policy, atlas

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
    if wanted and wanted not in known and is_operation(wanted):
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
    for overload, row in sorted(atlas().items()):
        name = without_overload(overload).removeprefix("aten::")
        merged = rules.setdefault(name, dict.fromkeys(row, UNLISTED))
        merged |= {device: _RULES[policy] for device, policy in row.items() if policy is not None}
    return {name: Operation(name, merged) for name, merged in rules.items()}
