"""Gradients under a loss scale: what a format does to them, and what `torch.amp.GradScaler` does about it."""

from amp_lessons.scaling.backward import backward_at, backward_by_layer, gradients
from amp_lessons.scaling.counts import FATES, Census, census

__all__ = ["FATES", "Census", "backward_at", "backward_by_layer", "census", "gradients"]
