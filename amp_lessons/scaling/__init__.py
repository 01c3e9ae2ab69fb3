"""Gradients under a loss scale: what a format does to them, what ``torch.amp.GradScaler`` does."""

from amp_lessons.scaling.backward import backward_at, backward_by_layer, gradients
from amp_lessons.scaling.checks import parse_scale
from amp_lessons.scaling.counts import FATES, Census, census
from amp_lessons.scaling.cycle import PHASES, AmpCycle, PhaseSnapshot, make_scaler
from amp_lessons.scaling.probe import LossScaleProbe
from amp_lessons.scaling.timeline import ScalerStep, ScalerTimeline

__all__ = [
    "FATES",
    "PHASES",
    "AmpCycle",
    "Census",
    "LossScaleProbe",
    "PhaseSnapshot",
    "ScalerStep",
    "ScalerTimeline",
    "backward_at",
    "backward_by_layer",
    "census",
    "gradients",
    "make_scaler",
    "parse_scale",
]
