"""Run a model once, watched, and leave no trace; on real or on fake tensors."""

from amp_lessons.autocast.running.fake_models import (
    fake_copy,
    fake_mode_of,
    fake_tensors,
    on_fake_cpu,
    require_module,
    without_collecting,
)
from amp_lessons.autocast.running.grad_mode import (
    as_in_inference_mode,
    for_autograd,
    gradients_on,
    require_normal_parameters,
)
from amp_lessons.autocast.running.paths import ModulePaths
from amp_lessons.autocast.running.prepared_run import PreparedRun, loss_tensors, prepare
from amp_lessons.autocast.running.saved import counting_saved
from amp_lessons.autocast.running.watch import Call, watching

__all__ = [
    "Call",
    "ModulePaths",
    "PreparedRun",
    "as_in_inference_mode",
    "counting_saved",
    "fake_copy",
    "fake_mode_of",
    "fake_tensors",
    "for_autograd",
    "gradients_on",
    "loss_tensors",
    "on_fake_cpu",
    "prepare",
    "require_module",
    "require_normal_parameters",
    "watching",
    "without_collecting",
]
