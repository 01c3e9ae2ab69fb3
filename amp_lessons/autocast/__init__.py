"""Which dtype autocast picks, asked of PyTorch itself, for any operation and any model, on any machine.

``policy``, ``entries``, ``explain``, ``atlas`` and ``differences`` answer for operations. ``cuda_rules``
brings CUDA's answers to the CPU. ``record`` writes the ledger of a model; ``fake_tensors`` and ``fake_copy``
let it do so for models of any size.
"""

from amp_lessons.autocast.cast_policy.dispatcher import UnreadablePyTorchError
from amp_lessons.autocast.cast_policy.explain import explain
from amp_lessons.autocast.cast_policy.operations import RULES, UNLISTED, Operation, operations
from amp_lessons.autocast.cast_policy.policy import Entry, Policy, atlas, differences, entries, policy
from amp_lessons.autocast.cuda_on_cpu.rules import RulesStatus, cuda_rules, region
from amp_lessons.autocast.ledger.ledger import record
from amp_lessons.autocast.ledger.recorder import RecordingError
from amp_lessons.autocast.ledger.rows import Cast, Ledger, Row, Summary
from amp_lessons.autocast.running.fakes import fake_copy, fake_tensors

__all__ = [
    "RULES",
    "UNLISTED",
    "Cast",
    "Entry",
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
    "operations",
    "policy",
    "record",
    "region",
]
