"""What each rank does: train with a learner's shards, and write down what they are after every call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.serving import told
from amp_lessons.course.exercises import bed_there, ranks_there
from amp_lessons.parallel.collectives import CollectiveLog

FEATURES, HIDDEN, OUTPUTS = 5, 7, 3
WEIGHTS = (FEATURES + 1) * HIDDEN + HIDDEN * OUTPUTS


def other_than_a_class(value: Any) -> str | None:
    """Describe what is no class with the methods gather and reduce; None for one."""
    methods = [getattr(value, name, None) for name in ("gather", "reduce")]
    return None if inspect.isclass(value) and all(map(callable, methods)) else describe(value)


def make_model(weights: Tensor) -> nn.Module:
    """Make the model of these weights, each parameter in memory of its own."""
    model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, OUTPUTS, bias=False))
    parameters = list(model.parameters())
    for parameter, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
        parameter.data = values.view_as(parameter).clone()
    return model


def loss(weight: float, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the weighted loss; the inputs are taken in the model's dtype."""
    dtype = next(model.parameters()).dtype
    return weight * F.mse_loss(model(inputs.to(dtype)).float(), targets)


def train(attempt: type, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Train on each problem until something is raised; return what was seen."""
    seen: list[dict[str, Any]] = []
    for given in problems:
        run = _Run(attempt, given)
        try:
            run.train()
        except BaseException as error:
            run.seen["raised"] = told(error)
        seen.append(run.seen)
        if run.seen["raised"] or run.seen["left"]:
            ranks_there.leave()
            break
    return seen


class _NoShard(Exception):  # noqa: N818 - there is nothing to go on with
    pass


class _Run:
    """One training; ``seen`` has a phase for each call of the learner's, and for each step."""

    def __init__(self, attempt: type, given: dict[str, Any]) -> None:
        self._attempt, self._given = attempt, given
        self.seen: dict[str, Any] = {"phases": [], "part": "", "raised": None, "left": []}

    def train(self) -> None:
        """Train; raises what is raised."""
        given, dtype = self._given, self._given["dtype"]
        self._model = make_model(given["weights"])
        self._sharded = self._call("", partial(self._attempt, self._model, dtype))
        shard = getattr(self._sharded, "shard", None)
        fit = isinstance(shard, Tensor) and shard.requires_grad and shard.is_leaf
        self._note(shard=shard, fit=fit, kept=self._kept())
        if not isinstance(shard, Tensor) or not fit or shard.shape != (given["share"],):
            raise _NoShard
        optimizer = torch.optim.SGD([shard], lr=given["rate"])
        for step in given["steps"]:
            sent = self._watched("gather")
            parameters = list(self._model.parameters())
            weights = torch.cat([p.detach().float().flatten() for p in parameters])
            self._note(dtypes=[p.dtype for p in parameters], weights=weights, sent=sent)
            loss(step["loss_weight"], self._model, *step["batches"][dist.get_rank()]).backward()
            sent = self._watched("reduce")
            kept = any(p.grad is not None for p in self._model.parameters())
            same = self._sharded.shard is shard
            self._note(same=same, gradient=shard.grad, kept_gradients=kept, sent=sent)
            if step["made"]:
                optimizer.step()
            optimizer.zero_grad()
            self._note(shard=self._sharded.shard, kept=self._kept())

    def _note(self, **facts: Any) -> None:
        """Note a phase, as it is now."""
        self.seen["phases"].append({k: v.clone() if isinstance(v, Tensor) else v for k, v in facts.items()})

    def _call(self, part: str, function: Callable[[], Any]) -> Any:
        self.seen["part"] = part
        returned = bed_there.call(function, [], {})
        self.seen["left"] += returned["left"]
        self.seen["part"] = ""
        return returned["result"]

    def _watched(self, name: str) -> list[tuple[str, torch.dtype, int]]:
        with CollectiveLog() as log:
            self._call(name, getattr(self._sharded, name))
        return [(each.name, each.dtype, each.elements) for each in log.calls]

    def _kept(self) -> dict[str, int]:
        attributes = vars(self._sharded).items()
        return {name: kept_in_fp32(value, self._model.parameters()) for name, value in attributes}


# --- what an attribute keeps alive, wherever it has put it: in a list, in a module, behind a function

_DEEPEST = 12  # a module within a module: four steps down


def kept_in_fp32(value: Any, apart_from: Iterable[Tensor] = ()) -> int:
    """Return how many fp32 numbers ``value`` keeps in memory, each once; a view keeps what it is a view of.

    Those of ``apart_from`` do not count: somebody else keeps them anyway.
    """
    theirs = {tensor.untyped_storage().data_ptr() for tensor in apart_from}
    storages = {
        storage.data_ptr(): storage.nbytes() // torch.float32.itemsize
        for tensor in _tensors(value, _DEEPEST, set())
        if tensor.dtype == torch.float32
        for storage in (tensor.untyped_storage(),)
    }
    return sum(elements for pointer, elements in storages.items() if pointer not in theirs)


def _tensors(value: Any, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
        return
    for member in _members(value):
        yield from _tensors(member, depth - 1, seen)


def _members(value: Any) -> Iterator[Any]:
    """Yield what an object of Python's refers to, but not the modules and classes that it comes from."""
    if isinstance(value, (type, ModuleType)):
        return
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, (FunctionType, MethodType)):
        yield from inspect.getclosurevars(value).nonlocals.values()
        yield from (value.__self__,) if isinstance(value, MethodType) else (value.__defaults__,)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    else:
        yield getattr(value, "__dict__", None)
