"""Weights in bf16, and steps that are smaller than half of its spacing: how far does each parameter come?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit import rules
from amp_lessons.audit.findings import passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.heal_frozen_weights.training_there import INPUTS, classifier
from amp_lessons.course.exercises.patients.digits import trained
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.material.models import seeded
from amp_lessons.formats import FORMATS
from amp_lessons.formats.rounding import spacing_at

_THERE = "amp_lessons.course.exercises.heal_frozen_weights.training_there:train"
_LR = 0.03  # no step of a gain reaches half a spacing of bf16 at 1; all of them together, ten
_BATCH = 64  # small ones have gains go to and fro, and rounding at random goes astray with each step
_LENGTHS = ((40, 3), (2, 60))  # batches and epochs: what is kept for an epoch only is lost in short ones
_LEAST, _MOST = 0.75, 1.75  # of the way, and of its length
_ASTRAY = 4.0  # standard deviations of a way whose steps are rounded at random, which is right, too
_LOSS_TOLERANCE = 0.05


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Have models trained, and hold the way of each parameter against the same training in fp32."""
    train = bed.function(worker, "train_frozen_weights", None, [], None, 1, _LR)
    for batches, epochs in _LENGTHS:
        model = seeded(classifier, int(torch.randint(2**30, (), generator=draw)))
        start = {name: each.detach().clone() for name, each in model.named_parameters()}
        inputs = torch.randn(batches, _BATCH, INPUTS, generator=draw)
        weight, bias = torch.randn(INPUTS, 4, generator=draw), torch.randn(4, generator=draw)
        loader = list(zip(inputs, (inputs @ weight + bias).argmax(-1), strict=True))
        told, _ = train.called_by(_THERE, start, loader, epochs, _LR)
        if mistake := products_elsewhere(told["products"], torch.bfloat16, "matrix products"):
            raise bed.Rejected(mistake)
        losses, variances = _in_fp32(model, loader, epochs)
        _require_steps(told["different"], epochs * batches)
        _require_unspoilt(told, loader, start)
        ways = {name: each.detach() - start[name] for name, each in model.named_parameters()}
        now = {name: told["parameters"][name].float() for name in start}
        _require_moved(now, start, ways, variances, told["different"], (batches, epochs) == _LENGTHS[-1])
        _require_losses(told["history"], losses)
    yield passed("moved", "every parameter came as far as in fp32, the gains of the layer norm included")
    yield passed("small", "every matrix product ran in bf16")
    yield bed.SideBySide("mean loss", "epoch", tuple(losses), tuple(told["history"]))


def _in_fp32(
    model: nn.Module, loader: list[tuple[Tensor, Tensor]], epochs: int
) -> tuple[list[float], dict[str, Tensor]]:
    """Train a model in fp32 by plain SGD; return the mean loss of each epoch, and variances.

    Those are of each number at the end, had each step been rounded to bf16 at random, true on average.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    variances = {name: torch.zeros_like(each) for name, each in model.named_parameters()}

    def loss_of(inputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs), labels)

    def add(*_: Any) -> None:
        for name, each in model.named_parameters():
            assert each.grad is not None
            spacing = spacing_at(
                each.detach(), FORMATS["bf16"].mantissa_bits, torch.finfo(torch.bfloat16).tiny
            )
            part = (_LR * each.grad.abs() / spacing) % 1  # how likely it is rounded away from zero
            variances[name] += part * (1 - part) * spacing**2

    optimizer.register_step_pre_hook(add)
    losses = [sum(trained(loader, loss_of, optimizer)) / len(loader) for _ in range(epochs)]
    return losses, variances


def _require_steps(different: int, batches: int) -> None:
    """Reject a training whose batches did not all meet other weights: a step moves a hundred of them."""
    if 1 < different < batches:
        said = f"only {different} sets of weights were multiplied, and {batches} batches ask for as many"
        hint = "make one step for each batch, and let the next one meet the weights that it made"
        bed.reject("batches_without_step", said, hint)


def _require_unspoilt(told: Any, loader: list[tuple[Tensor, Tensor]], start: dict[str, Tensor]) -> None:
    given, after = ([each for pair in pairs for each in pair] for pairs in (loader, told["batches"]))
    if len(given) != len(after) or not all(map(torch.equal, given, after)):
        said = "the loader has other batches after training than before"
        bed.reject("inputs_changed", said, "cast into new tensors, and leave the list as it is")
    for name, before in start.items():
        now = told["parameters"].get(name)
        if now is None or now.shape != before.shape or not now.isfinite().all():
            said = f"after training, the parameter {name} is missing, of another shape, or not finite"
            hint = "leave the trained weights in the model's own parameters, in fp32 or in bf16"
            bed.reject("weights_spoilt", said, hint)


def _require_moved(
    now: dict[str, Tensor],
    start: dict[str, Tensor],
    ways: dict[str, Tensor],
    variances: dict[str, Tensor],
    different: int,
    once_more: bool,
) -> None:
    """Reject a training in which a parameter came less, or more, than most of the way that it has in fp32.

    Less is enough where steps rounded at random, whose ``variances`` these are, may lead that far astray. It
    multiplied ``different`` weights; ``once_more`` says that in longer epochs they came far enough.
    """
    still = {name: (now[name] == each) | (now[name] == each.bfloat16()) for name, each in start.items()}
    if all(each.all() for each in still.values()):
        said = "the model that was passed in has the weights it began with: whatever was trained is lost"
        hint = "copy what was trained back into the model's parameters after each step"
        bed.reject("trained_elsewhere", said, hint)
    hint = "make the updates of plain SGD, one for each batch: learning rate times gradient, no "
    hint += "weight decay; and keep what they add up to in fp32, from the first batch to the last"
    moved = {name: now[name] - each for name, each in start.items()}
    lengths = {name: float(moved[name].norm() / way.norm()) for name, way in ways.items()}
    shares = {name: float((moved[name] * way).sum() / way.norm() ** 2) for name, way in ways.items()}
    astray = {
        name: _ASTRAY * float((way * variances[name].sqrt()).norm() / way.norm() ** 2)
        for name, way in ways.items()
    }
    at_most = {name: _longest(way, variances[name], astray[name]) for name, way in ways.items()}
    most = max(lengths, key=lambda name: lengths[name] / at_most[name])
    if lengths[most] > at_most[most]:
        said = f"{most} moved {lengths[most]:.3g} times as far as plain SGD takes it"
        if different == 1:
            said += ": the weights that were multiplied are the same in all batches"
            hint = (
                "autocast keeps the 16-bit copies that it makes of weights until its region ends: enter it "
            )
            hint += "anew for each batch; copies of your own, too, are to be made anew after each step"
        bed.reject("moved_too_far", said, hint)
    short_of = [name for name, share in shares.items() if share < min(_LEAST, 1 - astray[name])]
    if not short_of:
        return
    worst = min(short_of, key=shares.__getitem__)
    kept = still[worst]
    came = f"{worst} came {shares[worst]:.0%} of the way that it comes in fp32"
    counted = f"{int(kept.sum())} of its {kept.numel()} numbers are what they were"
    # a few numbers stay by chance, and less than nothing is more than rounding at random
    if shares[worst] < -0.03 or kept.float().mean() < 0.1:
        bed.reject("moved_too_little", f"{came}, and {counted}", hint)
    if once_more:
        (long, few), (short, many) = _LENGTHS
        said = f"in {few} epochs of {long} batches it came far enough, and in {many} epochs of {short} not"
        hint = (
            "is what is kept in fp32 made anew in each epoch, out of 16 bits? Make it once, before the first"
        )
        bed.reject("kept_for_an_epoch", f"{came}, and {counted}: {said}", hint)
    lost = rules.dtypes.updates_rounded_away(f"{came}, and {counted}", "16-bit")
    if kept.all():
        lost = replace(lost, message=f"{lost.message}. Or nothing changes this parameter at all")
    raise bed.Rejected(replace(lost, hint=f"{lost.hint}; in all of them, from the first batch to the last"))


def _longest(way: Tensor, variance: Tensor, along: float) -> float:
    """Return how many times as long as ``way`` one may be that was rounded at random, and at least ``_MOST``.

    It may be longer ``along`` the way, and across by variances, of which a few numbers have more by chance.
    """
    by_chance = 1 + _ASTRAY * math.sqrt(2 / way.numel()) + 8 / way.numel()
    across = float(variance.sum() / way.norm() ** 2)
    return max(_MOST, math.sqrt((1 + along) ** 2 + by_chance * across))


def _require_losses(history: Any, losses: list[float]) -> None:
    if not isinstance(history, list) or not all(isinstance(each, float) for each in history):
        bed.reject_type("a list of floats was", history, "append total / len(loader), with total a float")
    right = [math.isclose(a, b, rel_tol=_LOSS_TOLERANCE) for a, b in zip(history, losses, strict=False)]
    if len(history) != len(losses) or not all(right):
        seen, wanted = (", ".join(f"{each:.3g}" for each in values[:8]) for values in (history, losses))
        said = f"the losses returned are {seen}, and those of the same training in fp32 {wanted}"
        bed.reject("losses_wrong", said, "return the mean of the batches' losses, one number for each epoch")
