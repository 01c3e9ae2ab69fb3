"""Which dtype autocast picks, asked of PyTorch itself, for any operation and any model, on any machine.

``policy``, ``entries``, ``explain``, ``atlas`` and ``differences`` answer for operations. ``cuda_rules``
brings CUDA's answers to the CPU. ``record`` writes the ledger of a model; ``fake_tensors`` and ``fake_copy``
let it do so for models of any size.

Five rooms, each of which imports only from those before it: ``cast_policy`` (what autocast does to an
operation), ``cuda_on_cpu`` (CUDA's answers and kernels on the CPU), ``running`` (run a model once, watched,
and leave no trace), ``ledger`` (write down what was seen) and ``islands`` (which modules go wrong, and need
fp32). From outside a room its face is imported, not what lies inside.
"""

from amp_lessons.autocast.cast_policy import (
    RULES,
    UNLISTED,
    Entry,
    Operation,
    Policy,
    UnreadablePyTorchError,
    atlas,
    differences,
    entries,
    explain,
    operations,
    policy,
)
from amp_lessons.autocast.cuda_on_cpu import RulesStatus, cuda_rules, region
from amp_lessons.autocast.islands import Island, Islands, find_islands, in_fp32
from amp_lessons.autocast.ledger import Cast, Ledger, RecordingError, Row, Summary, record
from amp_lessons.autocast.running import fake_copy, fake_tensors

__all__ = [
    "RULES",
    "UNLISTED",
    "Cast",
    "Entry",
    "Island",
    "Islands",
    "Ledger",
    "Operation",
    "Policy",
    "RecordingError",
    "Row",
    "RulesStatus",
    "Summary",
    "UnreadablePyTorchError",
    "atlas",
    "cuda_rules",
    "differences",
    "entries",
    "explain",
    "fake_copy",
    "fake_tensors",
    "find_islands",
    "in_fp32",
    "operations",
    "policy",
    "record",
    "region",
]
