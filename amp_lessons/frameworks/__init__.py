"""What the precision flags of training frameworks mean: found by training under the audit, not believed."""

from amp_lessons.frameworks.meanings import FLAGS, Meaning, meaning_of
from amp_lessons.frameworks.memory import Estimate, accelerate_estimate

__all__ = ["FLAGS", "Estimate", "Meaning", "accelerate_estimate", "meaning_of"]
