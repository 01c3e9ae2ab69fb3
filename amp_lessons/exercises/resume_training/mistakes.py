"""What a training run that was loaded from a checkpoint has lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.audit import known_mistakes
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.resume_training.testbed import Training, equal
from amp_lessons.text.describing import describe


def lost(wanted: dict[str, Any], resumed: Training) -> Iterator[Finding]:
    """Look for what ``resumed`` has of its own instead of what was saved, ``wanted``."""
    yield from _model(wanted["model"], resumed.model)
    yield from _same_parameters(resumed)
    yield from _optimizer(wanted["optimizer"], resumed.optimizer)
    yield from _scheduler(wanted["scheduler"], resumed.scheduler.state_dict())
    yield from _scaler(wanted["scaler"], resumed.scaler.state_dict())


def _model(wanted: dict[str, Tensor], model: nn.Module) -> Iterator[Finding]:
    found = model.state_dict()
    wrong = [name for name in wanted if not equal(wanted[name], found[name])]
    if not wrong:
        return
    if any(_rounded_to(dtype, wrong, wanted, found) for dtype in (torch.float16, torch.bfloat16)):
        yield failed(
            "weights_rounded",
            "the weights came back rounded to 16 bits: the digits that fp32 weights exist for are gone",
            "save the fp32 weights as they are",
        )
    if len(wrong) < len(wanted):
        yield failed(
            "model_incomplete",
            f"{', '.join(wrong)} did not come back; buffers (batch norm's running statistics) belong to the "
            "state as well",
            "model.state_dict() holds parameters and buffers; model.parameters() holds only the former",
        )
    yield failed(
        "model_not_restored",
        "the model that was passed to load_checkpoint still has its own weights",
        "model.load_state_dict(state['model']) changes the model in place; assigning to the name model "
        "does not",
    )


def _rounded_to(
    dtype: torch.dtype, names: list[str], wanted: dict[str, Tensor], found: dict[str, Tensor]
) -> bool:
    """Whether what came back under these names is what was saved, rounded to ``dtype``."""
    return all(equal(wanted[name].to(dtype).float(), found[name].float()) for name in names)


def _same_parameters(resumed: Training) -> Iterator[Finding]:
    if not resumed.model.training:
        yield known_mistakes.evaluation_mode("after loading")
    stepped = {id(p) for group in resumed.optimizer.param_groups for p in group["params"]}
    if not all(id(parameter) in stepped for parameter in resumed.model.parameters()):
        yield failed(
            "parameters_replaced",
            "the model has new parameter tensors (load_state_dict with assign=True, for one), while the "
            "optimizer still steps the old ones: training would change nothing",
            "model.load_state_dict(state['model']) copies into the tensors that are there",
        )


def _optimizer(wanted: dict[str, Any], optimizer: torch.optim.Optimizer) -> Iterator[Finding]:
    found = optimizer.state_dict()
    if not equal(wanted["state"], found["state"]):
        yield failed(
            "optimizer_not_restored",
            "the optimizer's state did not come back: its momentum (or Adam's averages) starts from zero "
            "again",
            "optimizer.load_state_dict(state['optimizer']), on the optimizer that was passed in",
        )
    if wanted["param_groups"] != found["param_groups"]:
        rates = [state["param_groups"][0]["lr"] for state in (found, wanted)]
        yield failed(
            "learning_rate_lost",
            f"after loading the learning rate is {rates[0]:g} instead of {rates[1]:g}",
            "load the optimizer's whole state dict, which holds its param_groups, and create nothing that "
            "resets them",
        )


def _scheduler(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if wanted["last_epoch"] != found["last_epoch"]:
        yield failed(
            "scheduler_not_restored",
            f"the scheduler thinks it is in epoch {found['last_epoch']} instead of {wanted['last_epoch']}: "
            "the learning rate schedule starts again",
            "scheduler.load_state_dict(state['scheduler'])",
        )


def _scaler(wanted: dict[str, Any], found: dict[str, Any]) -> Iterator[Finding]:
    if found.get("scale") != wanted.get("scale"):
        yield failed(
            "scaler_not_restored",
            f"the scaler starts with scale {found['scale']:g} instead of {wanted['scale']:g}: the first "
            "steps may be skipped until it has found its scale again",
            "save scaler.state_dict() and call scaler.load_state_dict",
        )
    if not equal(wanted, found):
        yield failed(
            "growth_tracker_lost",
            "the scale came back, but not the scaler's count of clean steps (or its settings)",
            "scaler.state_dict() holds all of it; get_scale() alone does not",
        )


def wrong_epoch(found: Any, saved: int) -> Iterator[Finding]:
    """Look whether load_checkpoint returned another epoch than was saved."""
    if found != saved or isinstance(found, bool):
        yield failed(
            "epoch_lost",
            f"load_checkpoint returned {describe(found)}; {saved} finished epochs were saved",
            "return the epoch that was passed to save_checkpoint",
        )


def lost_random(wanted: list[Tensor], found: list[Tensor]) -> Iterator[Finding]:
    """Look whether the random state of PyTorch is another than the one that was saved."""
    if not equal(wanted, found):
        yield failed(
            "random_state_lost",
            "the state of PyTorch's random numbers did not come back: dropout masks and the shuffling of "
            "data differ from now on",
            "save torch.get_rng_state() (and torch.cuda.get_rng_state_all() on a GPU), and set it when "
            "loading",
        )


def load_raised(outcome: Outcome, scaling: bool) -> Finding:
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
        outcome, f"in load_checkpoint{'' if scaling else ' with a disabled scaler'}"
    )
