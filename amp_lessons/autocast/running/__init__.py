"""Run a model once, watched, and leave no trace; on real or on fake tensors."""

from amp_lessons.autocast.running.fake_models import (
    BroughtAlong,
    RealResults,
    as_in_inference_mode,
    fake_copy,
    fake_mode_of,
    fake_tensors,
    for_autograd,
    gradients_on,
    on_fake_cpu,
    require_module,
    require_normal_parameters,
    twins,
)
from amp_lessons.autocast.running.prepared_run import (
    AlikeDropout,
    ModulePaths,
    PreparedRun,
    loss_tensors,
    losses_of,
    prepare,
    values_kept,
)
from amp_lessons.autocast.running.watch import OperationCall, counting_saved, watching

__all__ = [
    "AlikeDropout",
    "BroughtAlong",
    "ModulePaths",
    "OperationCall",
    "PreparedRun",
    "RealResults",
    "as_in_inference_mode",
    "counting_saved",
    "fake_copy",
    "fake_mode_of",
    "fake_tensors",
    "for_autograd",
    "gradients_on",
    "loss_tensors",
    "losses_of",
    "on_fake_cpu",
    "prepare",
    "require_module",
    "require_normal_parameters",
    "twins",
    "values_kept",
    "watching",
]
