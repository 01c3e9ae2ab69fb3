"""What each rank does: train with a learner's shards, and write down what they are after every call."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.worker.serving import told
from amp_lessons.course.exercises import bed_there, ranks_there
from amp_lessons.parallel.collectives import CollectiveLog

FEATURES, HIDDEN = 5, 7


def count_weights(outputs: int) -> int:
    """Return how many weights the model with so many outputs has."""
    return (FEATURES + 1) * HIDDEN + HIDDEN * outputs


def make_model(weights: Tensor) -> nn.Module:
    """Make the model of these weights, each parameter in memory of its own."""
    outputs = (len(weights) - count_weights(0)) // HIDDEN
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, outputs, bias=False))
    parameters = list(model.parameters())
    for parameter, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
        parameter.data = values.view_as(parameter).clone()
    return model


def loss(weight: float, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the weighted loss; the inputs are taken in the model's dtype."""
    dtype = next(model.parameters()).dtype
    return weight * F.mse_loss(model(inputs.to(dtype)).float(), targets)


def train(attempt: type, problems: list[dict[str, Any]]) -> dict[str, Any]:
    """Train on one problem after the other, until something is raised; return what was seen."""
    seen: dict[str, Any] = {"phases": [], "part": "", "raised": None, "left": []}
    try:
        for problem in problems:
            for phase in _train(attempt, problem, seen):
                copies = {k: v.clone() if isinstance(v, Tensor) else v for k, v in phase.items()}
                seen["phases"].append(copies)
    except BaseException as error:
        seen["raised"] = told(error)
        ranks_there.leave()
    return seen


def _train(attempt: type, problem: dict[str, Any], seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Train; yield what there is after ``__init__``, and then after each gather, reduce and step."""
    model, dtype = make_model(problem["weights"]), problem["dtype"]
    sharded, _ = _call(seen, "", attempt, model, dtype)
    yield _held(sharded, model, dtype)
    shard = sharded.shard
    optimizer = torch.optim.SGD([shard], lr=problem["rate"])
    for step in problem["steps"]:
        _, sent = _call(seen, "gather", sharded.gather)
        parameters = list(model.parameters())
        weights = torch.cat([p.detach().float().flatten() for p in parameters])
        yield {"dtypes": [p.dtype for p in parameters], "weights": weights, "sent": sent}
        loss(step["loss_weight"], model, *step["batches"][dist.get_rank()]).backward()
        _, sent = _call(seen, "reduce", sharded.reduce)
        stay = any(p.grad is not None for p in model.parameters())
        yield {"gradient": shard.grad, "gradients_stay": stay, "sent": sent}
        if step["made"]:
            optimizer.step()
        optimizer.zero_grad()
        yield _held(sharded, model, dtype)


def _call(seen: dict[str, Any], part: str, function: Any, *args: Any) -> tuple[Any, list[Any]]:
    """Return what a function of the learner's returns, and the collectives that it called."""
    seen["part"] = part
    with CollectiveLog() as log:
        returned = bed_there.call(function, list(args), {})
    seen["part"] = ""  # what raises from here on is not in it
    seen["left"] += returned["left"]
    return returned["result"], [(each.name, each.dtype, each.elements) for each in log.calls]


def _held(sharded: Any, model: nn.Module, dtype: torch.dtype) -> dict[str, Any]:
    shard, attributes = getattr(sharded, "shard", None), getattr(sharded, "__dict__", {})
    if dtype == torch.float32:  # what is gathered to compute with looks like masters then
        attributes = {}
    fit = isinstance(shard, Tensor) and shard.requires_grad and shard.is_leaf
    kept = {name: kept_in_fp32(value, model.parameters()) for name, value in attributes.items()}
    return {"shard": shard, "fit": fit, "kept": kept}


def kept_in_fp32(value: Any, apart_from: Iterable[Tensor] = ()) -> int:
    """Return how many fp32 numbers ``value`` keeps in memory, each once; a view keeps what it is a view of.

    They may be anywhere, in a list, in a module, behind a function. Those of ``apart_from`` do not count.
    """
    met, waiting = dict[int, Any](), [value]
    while waiting:
        each = waiting.pop()
        if id(each) in met or isinstance(each, (type, ModuleType)):
            continue
        met[id(each)] = each
        if isinstance(each, FunctionType):  # it also refers to its module, and so to all that is there
            waiting += [each.__closure__, each.__defaults__, each.__kwdefaults__]
        else:
            waiting += gc.get_referents(each)
    tensors = [each for each in met.values() if isinstance(each, Tensor) and each.dtype == torch.float32]
    storages = {each.data_ptr(): each.nbytes() for each in (tensor.untyped_storage() for tensor in tensors)}
    theirs = {tensor.untyped_storage().data_ptr() for tensor in apart_from}
    return sum(nbytes for at, nbytes in storages.items() if at not in theirs) // torch.float32.itemsize
