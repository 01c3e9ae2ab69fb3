"""What a training run that was loaded from a checkpoint has lost."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.resume_training.testbed import Training, equal
from amp_lessons.text.describing import describe


def lost(wanted: dict[str, Any], resumed: Training) -> Finding | None:
    """Name the first thing in which ``resumed`` is not what was saved, ``wanted``."""
    return (
        _model(wanted["model"], resumed.model)
        or _same_parameters(resumed)
        or _optimizer(wanted["optimizer"], resumed.optimizer)
        or _scheduler(wanted["scheduler"], resumed.scheduler.state_dict())
        or _scaler(wanted["scaler"], resumed.scaler)
    )


def _model(wanted: dict[str, Tensor], model: nn.Module) -> Finding | None:
    found = model.state_dict()
    wrong = [name for name in wanted if not equal(wanted[name], found[name])]
    if not wrong:
        return None
    if all(
        equal(wanted[name].to(dtype).float(), found[name].float())
        for name in wrong
        for dtype in [torch.float16]
    ):
        return failed(
            "weights_rounded",
            "the weights came back rounded to 16 bits: the digits that float32 weights exist for are gone",
            "save the float32 weights as they are",
        )
    if len(wrong) < len(wanted):
        return failed(
            "model_incomplete",
            f"{', '.join(wrong)} did not come back; buffers (batch norm's running statistics) belong to the "
            "state as well",
            "model.state_dict() holds parameters and buffers; model.parameters() holds only the former",
        )
    return failed(
        "model_not_restored",
        "the model that was passed to load_checkpoint still has its own weights",
        "model.load_state_dict(state['model']) changes the model in place; assigning to the name model "
        "does not",
    )


def _same_parameters(resumed: Training) -> Finding | None:
    if not resumed.model.training:
        return failed(
            "evaluation_mode",
            "after loading the model is in evaluation mode: dropout is off and batch norm's statistics stand "
            "still from now on",
            "leave out model.eval(), which is for inference",
        )
    stepped = {id(p) for group in resumed.optimizer.param_groups for p in group["params"]}
    if all(id(parameter) in stepped for parameter in resumed.model.parameters()):
        return None
    return failed(
        "parameters_replaced",
        "the model has new parameter tensors (load_state_dict with assign=True, for one), while the "
        "optimizer still steps the old ones: training would change nothing",
        "model.load_state_dict(state['model']) copies into the tensors that are there",
    )


def _optimizer(wanted: dict[str, Any], optimizer: torch.optim.Optimizer) -> Finding | None:
    found = optimizer.state_dict()
    if not equal(wanted["state"], found["state"]):
        return failed(
            "optimizer_not_restored",
            "the optimizer's state did not come back: its momentum (or Adam's averages) starts from zero "
            "again",
            "optimizer.load_state_dict(state['optimizer']), on the optimizer that was passed in",
        )
    groups = [{k: v for k, v in g.items() if k != "lr"} for g in found["param_groups"]]
    expected = [{k: v for k, v in g.items() if k != "lr"} for g in wanted["param_groups"]]
    rates = [[g["lr"] for g in state["param_groups"]] for state in (found, wanted)]
    if rates[0] != rates[1] or groups != expected:
        return failed(
            "learning_rate_lost",
            f"after loading the learning rate is {rates[0][0]:g} instead of {rates[1][0]:g}",
            "load the optimizer's whole state dict, which holds its param_groups, and create nothing that "
            "resets them",
        )
    return None


def _scheduler(wanted: dict[str, Any], found: dict[str, Any]) -> Finding | None:
    if wanted["last_epoch"] == found["last_epoch"]:
        return None
    return failed(
        "scheduler_not_restored",
        f"the scheduler thinks it is in epoch {found['last_epoch']} instead of {wanted['last_epoch']}: "
        "the learning rate schedule starts again",
        "scheduler.load_state_dict(state['scheduler'])",
    )


def _scaler(wanted: dict[str, Any], scaler: torch.amp.GradScaler) -> Finding | None:
    found = scaler.state_dict()
    if equal(wanted, found):
        return None
    if found.get("scale") != wanted.get("scale"):
        return failed(
            "scaler_not_restored",
            f"the scaler starts with scale {found['scale']:g} instead of {wanted['scale']:g}: the first "
            "steps may be skipped until it has found its scale again",
            "save scaler.state_dict() and call scaler.load_state_dict",
        )
    return failed(
        "growth_tracker_lost",
        "the scale came back, but not the scaler's count of clean steps (or its settings)",
        "scaler.state_dict() holds all of it; get_scale() alone does not",
    )


def wrong_epoch(found: Any, saved: int) -> Finding | None:
    """Say that load_checkpoint returned another epoch than was saved."""
    if found == saved and not isinstance(found, bool):
        return None
    return failed(
        "epoch_lost",
        f"load_checkpoint returned {describe(found)}; {saved} finished epochs were saved",
        "return the epoch that was passed to save_checkpoint",
    )


def lost_random(wanted: list[Tensor], found: list[Tensor]) -> Finding | None:
    """Say that the random state of PyTorch is not the one that was saved."""
    if equal(wanted, found):
        return None
    return failed(
        "random_state_lost",
        "the state of PyTorch's random numbers did not come back: dropout masks and the shuffling of data "
        "differ from now on",
        "save torch.get_rng_state() (and torch.cuda.get_rng_state_all() on a GPU), and set it when loading",
    )


def load_raised(outcome: sandbox.Outcome, scaling: bool) -> Finding:
    """Explain the exception that ended load_checkpoint."""
    text = outcome.error_text
    if "source state dict is empty" in text:
        return failed(
            "empty_scaler_state",
            "the scaler refused the state it was given: it is empty, as that of a disabled scaler is",
            "save scaler.state_dict() of the scaler that training uses",
        )
    if type(outcome.error).__name__ == "UnpicklingError" and "Weights only load failed" in text:
        return failed(
            "pickled_objects",
            "torch.load refused the file, since it holds whole Python objects instead of their state",
            "save model.state_dict(), optimizer.state_dict() and so on: tensors, numbers, lists and dicts",
        )
    return common_findings.raised(
        outcome, "in load_checkpoint" + ("" if scaling else " with a disabled scaler")
    )
