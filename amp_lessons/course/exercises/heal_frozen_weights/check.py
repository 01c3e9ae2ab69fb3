"""Weights in bf16, and steps that are smaller than half of its spacing: how far does each parameter come?"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import described, function
from amp_lessons.course.exercises.heal_frozen_weights import training_there
from amp_lessons.course.exercises.heal_frozen_weights.training_there import INPUTS, classifier
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.exercises.report.results import SideBySide
from amp_lessons.course.material.models import seeded

_LEAST, _MOST = 0.75, 1.75  # of the way, and of its length: stochastic rounding, which is right, is noisy
_SOME = 0.1  # of a parameter that did not move: what is left of it, rounding has not stopped
_BACK = 0.03  # of the way, in the opposite direction: more than rounding at random does
_ASTRAY = 2.0  # times as long as what it came on its way: most of where it went lies elsewhere
_LOSS_TOLERANCE = 0.05


_THERE = f"{training_there.__name__}:train"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Have models trained, and hold the way of each parameter against the same training in fp32."""
    train = function(worker, "train_frozen_weights", None, [], None, 1, _LR)
    for batches, epochs in _LENGTHS:
        given = _problem(draw, batches, epochs)
        start = given.start()
        told, _ = train.called_by(_THERE, start, [list(each) for each in given.loader], epochs, _LR)
        (ways, losses), history = _in_fp32(given), _history(told, given)
        _require_batches(given, told["batches"])
        _require_parameters(told["parameters"], start)
        _require_moved(told["parameters"], start, ways)
        _require_losses(history, losses)
    yield passed("moved", "every parameter came as far as in fp32, the gains of the layer norm included")
    yield passed("small", "every matrix product ran in bf16")
    yield SideBySide("mean loss", "epoch", tuple(losses), tuple(history))


def _history(told: dict[str, Any], given: FrozenProblem) -> list[float]:
    mistake = products_elsewhere(told["products"], torch.bfloat16, "matrix products")
    if mistake is not None:
        raise Rejected(mistake)
    _require_steps(told["different"], given.epochs * len(given.loader))
    history = told["history"]
    if not isinstance(history, list) or not all(isinstance(each, float) for each in history):
        hint = "append total / len(loader), with total a float"
        reject("wrong_return_type", f"a list of floats was expected, not {described(history)}", hint)
    return history


def _require_steps(different: int, batches: int) -> None:
    """Reject a training whose batches did not all meet other weights: a step moves a hundred of them."""
    if 1 < different < batches:
        reject(
            "batches_without_step",
            f"only {different} different sets of weights were multiplied, where {batches} batches ask for as "
            "many: a step did not follow each of them",
            "make one step for each batch, with its own gradient and the learning rate given",
        )


def _require_batches(given: FrozenProblem, after: list[tuple[Tensor, Tensor]]) -> None:
    pairs = zip(given.loader, after, strict=False)
    if len(given.loader) != len(after) or not all(
        torch.equal(new, old) for one, other in pairs for new, old in zip(one, other, strict=True)
    ):
        reject("inputs_changed", "the batches were changed in place", "cast into new tensors")


def _require_parameters(now: dict[str, Tensor], start: dict[str, Tensor]) -> None:
    for name, before in start.items():
        if name not in now or now[name].shape != before.shape or not now[name].isfinite().all():
            reject(
                "weights_spoilt",
                f"after training, the model's parameter {name} is missing, of another shape, or not finite",
                "leave the trained weights in the model's own parameters, in fp32 or in bf16",
            )


def _require_moved(trained: dict[str, Tensor], start: dict[str, Tensor], ways: dict[str, Tensor]) -> None:
    """Reject a training in which a parameter came less, or more, than most of the way that it has in fp32."""
    now = {name: each.float() for name, each in trained.items()}
    still = {name: _unmoved(now[name], start[name]) for name in start}
    if all(each.all() for each in still.values()):
        _reject_untrained()
    moved = {name: now[name] - start[name] for name in start}
    lengths = {name: float(moved[name].norm() / way.norm()) for name, way in ways.items()}
    _require_not_too_far(lengths)
    shares = {name: float((moved[name] * way).sum() / (way * way).sum()) for name, way in ways.items()}
    least = min(shares, key=shares.__getitem__)
    if shares[least] < _LEAST:
        came = f"{least} came {shares[least]:.0%} of the way that it comes in fp32"
        astray = lengths[least] > _ASTRAY * shares[least]
        _reject_lost(came, still[least], elsewhere=astray, backwards=shares[least] < -_BACK)


def _require_not_too_far(lengths: dict[str, float]) -> None:
    most = max(lengths, key=lengths.__getitem__)
    if lengths[most] > _MOST:
        reject(
            "moved_too_far",
            f"{most} came {lengths[most]:.3g} times as far as plain SGD takes it with this learning rate",
            "make the same updates as before, of the same size, and keep what they add up to",
        )


def _unmoved(now: Tensor, start: Tensor) -> Tensor:
    return (now == start) | (now == start.bfloat16())


def _reject_untrained() -> NoReturn:
    reject(
        "trained_elsewhere",
        "the model that was passed in has the weights it began with: whatever was trained is lost when the "
        "function returns",
        "copy what was trained back into the model's parameters after each step",
    )


def _reject_lost(seen: str, still: Tensor, elsewhere: bool, backwards: bool) -> NoReturn:
    if backwards:
        reject(
            "moved_elsewhere",
            f"{seen}: it went the opposite way, as where an update, or what rounding cut off of it, has the "
            "wrong sign",
            "take the learning rate times the gradient off; what rounding cut off of an update is the update "
            "minus the change that it made",
        )
    if still.float().mean() < _SOME and elsewhere:
        reject(
            "moved_elsewhere",
            f"{seen}, and all of it moved, elsewhere: something else than its gradients moved it, weight "
            "decay, say",
            "make the updates of plain SGD and no others: the learning rate times the gradient",
        )
    if still.float().mean() < _SOME:
        reject(
            "moved_too_little",
            f"{seen}, and all of it moved: updates are missing, or too small",
            "make one update for each batch of each epoch, with the learning rate given",
        )
    count = f"{int(still.sum())} of its {still.numel()} numbers are what they were"
    raise Rejected(catalogue.precision.updates_rounded_away(f"{seen}, and {count}", "16-bit"))


def _require_losses(history: list[float], losses: list[float]) -> None:
    right = [math.isclose(a, b, rel_tol=_LOSS_TOLERANCE) for a, b in zip(history, losses, strict=False)]
    if len(history) != len(losses) or not all(right):
        reject(
            "losses_wrong",
            f"the losses returned are {_told(history)}, and those of the same training in fp32 "
            f"{_told(losses)}",
            "return the mean of the batches' losses, one number for each epoch",
        )


def _told(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values[:8])


# --- a model whose gains lie where bf16 is coarse, and what fp32 makes of the same training

_LR = 0.02  # no step of a gain reaches half a spacing of bf16 at 1; all of them together, ten
_LENGTHS = ((30, 4), (2, 60))  # batches and epochs: what is kept for an epoch only is lost in short ones
_BATCH = 16


@dataclass
class FrozenProblem:
    """A model in fp32, batches of inputs (batch, 8) and labels, all drawn from one seed."""

    model: nn.Module
    loader: list[tuple[Tensor, Tensor]]
    epochs: int

    def start(self) -> dict[str, Tensor]:
        """Copy the parameters, in fp32."""
        return {name: each.detach().float().clone() for name, each in self.model.named_parameters()}


def _problem(draw: torch.Generator, batches: int, epochs: int) -> FrozenProblem:
    """Make a classifier, and data that another one labels."""
    model = seeded(classifier, int(torch.randint(2**30, (), generator=draw)))
    inputs = torch.randn(batches * _BATCH, INPUTS, generator=draw)
    labels = (inputs @ torch.randn(INPUTS, 4, generator=draw)).argmax(1)
    pairs = zip(inputs.split(_BATCH), labels.split(_BATCH), strict=True)
    return FrozenProblem(model, list(pairs), epochs)


def _in_fp32(problem: FrozenProblem) -> tuple[dict[str, Tensor], list[float]]:
    """Train a copy in fp32 by plain SGD; return how far each parameter came, and the losses."""
    model, start, history = copy.deepcopy(problem.model), problem.start(), []
    for _ in range(problem.epochs):
        losses = []
        for inputs, labels in problem.loader:
            loss = F.cross_entropy(model(inputs), labels)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                    parameter.sub_(_LR * gradient)
            losses.append(loss.item())
        history.append(sum(losses) / len(losses))
    return {name: each.detach() - start[name] for name, each in model.named_parameters()}, history
