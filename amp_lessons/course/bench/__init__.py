"""Time and memory of well-known models in every precision, measured on this machine and kept.

``amp-lessons bench`` measures; ``recordings`` reads what was measured, by this learner and by those who made
the course, with its provenance; ``confront`` puts what a source claims beside what is predicted and what was
recorded.
"""

from amp_lessons.course.bench.confrontation import Confrontation, confront
from amp_lessons.course.bench.folders import recordings
from amp_lessons.course.bench.results import Recording, Result, Setup
from amp_lessons.course.bench.workloads import (
    SOURCE_MODELS,
    WORKLOADS,
    Claim,
    MissingExtraError,
    Workload,
    benched,
    require_transformers,
)

__all__ = [
    "SOURCE_MODELS",
    "WORKLOADS",
    "Claim",
    "Confrontation",
    "MissingExtraError",
    "Recording",
    "Result",
    "Setup",
    "Workload",
    "benched",
    "confront",
    "recordings",
    "require_transformers",
]
