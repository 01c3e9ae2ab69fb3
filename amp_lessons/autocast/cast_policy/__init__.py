"""Which dtype autocast picks for an operation on a device: two witnesses, the kernels and the header."""

from amp_lessons.autocast.cast_policy.dispatcher import (
    UnreadablePyTorchError,
    autocast_key,
    is_composite,
    map_tensors,
    overload,
    tensors_in,
    without_overload,
)
from amp_lessons.autocast.cast_policy.explanations import RULES, UNLISTED, Operation, explain, operations
from amp_lessons.autocast.cast_policy.policies import (
    CUDNN_RNN,
    RECURRENT,
    Entry,
    Policy,
    atlas,
    differences,
    entries,
    policy,
)

__all__ = [
    "CUDNN_RNN",
    "RECURRENT",
    "RULES",
    "UNLISTED",
    "Entry",
    "Operation",
    "Policy",
    "UnreadablePyTorchError",
    "atlas",
    "autocast_key",
    "differences",
    "entries",
    "explain",
    "is_composite",
    "map_tensors",
    "operations",
    "overload",
    "policy",
    "tensors_in",
    "without_overload",
]
