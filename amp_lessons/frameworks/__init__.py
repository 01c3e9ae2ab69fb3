"""Training frameworks under the audit: what their precision flags mean, found and not believed; callbacks."""

from amp_lessons.frameworks.callbacks import accelerate_tracker, lightning_callback, transformers_callback
from amp_lessons.frameworks.meanings import FLAGS, Estimate, Meaning, accelerate_estimate, meaning_of

__all__ = [
    "FLAGS",
    "Estimate",
    "Meaning",
    "accelerate_estimate",
    "accelerate_tracker",
    "lightning_callback",
    "meaning_of",
    "transformers_callback",
]
