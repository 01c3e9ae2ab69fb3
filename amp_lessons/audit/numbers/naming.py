"""Find the models that are trained, name their parts as their owners do, and say how they are distributed."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.audit.recorder.later import is_distributed

_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Names:
    """The names of all modules and parameters of the models that are watched.

    A parameter belongs to the layer that owns it. Where there are several models, names begin with the
    model's class.
    """

    def __init__(self, models: Iterable[nn.Module] = ()) -> None:
        self.models: list[nn.Module] = []
        self._modules: dict[int, tuple[int, str]] = {}  # by id: the model's number, and the name in there
        self._owners: dict[int, tuple[int, str]] = {}  # of parameters
        for model in models:
            self._add(model)

    def find(self, parameters: Iterable[Tensor]) -> None:
        """Look for the models that own ``parameters``, among all that live."""
        unknown = {id(p) for p in parameters} - self._owners.keys()
        for model in _roots() if unknown else ():
            if any(id(p) in unknown for p in model.parameters()):
                self._add(model)
                unknown -= self._owners.keys()

    def module(self, module: nn.Module) -> str | None:
        """Name a module of a watched model; None for any other."""
        return self._full(*self._modules[id(module)]) if id(module) in self._modules else None

    def in_evaluation(self, module: nn.Module) -> bool:
        """Whether all of the model that a module is part of is in evaluation mode, and wants gradients."""
        model = self.models[self._modules[id(module)][0]]
        return not any(part.training for part in model.modules()) and all(
            parameter.requires_grad for parameter in model.parameters()
        )

    def by_layer(self, parameters: Iterable[Tensor]) -> dict[str, list[Tensor]]:
        """Group parameters by the layer that owns them, in order; those of no model by their number."""
        grouped: dict[str, list[Tensor]] = {}
        for index, parameter in enumerate(parameters):
            owner = self._owners.get(id(parameter))
            layer = self._full(*owner) if owner is not None else f"parameter {index}"
            grouped.setdefault(layer, []).append(parameter)
        return grouped

    def _full(self, number: int, name: str) -> str:
        kinds = [type(model).__name__ for model in self.models]
        kind = kinds[number]
        if len(kinds) == 1:
            return name or kind
        which = kind if kinds.count(kind) == 1 else f"{kind}{kinds[: number + 1].count(kind)}"
        return f"{which}.{name}" if name else which

    def _add(self, model: nn.Module) -> None:
        number = len(self.models)
        self.models.append(model)
        for name, module in model.named_modules():
            self._modules.setdefault(id(module), (number, _bare(name)))
        for name, parameter in model.named_parameters():
            self._owners.setdefault(id(parameter), (number, _bare(name).rpartition(".")[0]))


def _bare(name: str) -> str:
    """Leave out what wrappers add to a name: data parallelism, compiling, checkpointing."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def living_optimizers() -> list[torch.optim.Optimizer]:
    """Return the optimizers there are."""
    return _living(torch.optim.Optimizer)


def _living(kind: type) -> list[Any]:
    # by type(), not isinstance: asking a proxy object for its class may run anybody's code
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]


def _roots() -> Iterator[nn.Module]:
    """Yield the living modules that are no part of another."""
    modules = _living(nn.Module)
    parts = {id(child) for each in modules for child in each._modules.values() if child is not None}
    yield from (each for each in modules if id(each) not in parts)


def is_compiled(model: nn.Module) -> bool:
    """Whether a model, or a part of it, runs as compiled code, which module hooks do not see."""
    return any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )


NOT_SEEN = (
    "what is done to gradients in distributed tensors before a step, but for the scaler's work and clipping: "
    "of such tensors a rank's own shards are looked at, when it steps"
)


def several_ranks() -> bool:
    """Whether this process is one of several that train together."""
    available = torch.distributed.is_available() and torch.distributed.is_initialized()
    return available and torch.distributed.get_world_size() > 1


def part_of(parameter: Tensor) -> str:
    """Name the part that this rank holds, "1/2" of the first of two shards; "" for all of it."""
    if not is_distributed(parameter):
        return ""
    mesh: Any = parameter.device_mesh  # type: ignore[attr-defined]
    at = mesh.get_coordinate() or [0] * mesh.ndim  # a rank outside of the mesh holds nothing
    parts = (
        f"{at[i] + 1}/{mesh.size(i)}"
        for i, placement in enumerate(parameter.placements)  # type: ignore[attr-defined]
        if placement.is_shard()
    )
    return ", ".join(parts)


def replicas() -> frozenset[int]:
    """Return the ids of the parameters that ``DistributedDataParallel`` keeps equal on all ranks."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None or not several_ranks():
        return frozenset()
    wrapped = _living(module.DistributedDataParallel)
    return frozenset(id(parameter) for each in wrapped for parameter in each.parameters())


def is_sharded(parameters: Iterable[Tensor]) -> bool:
    """Whether a rank holds only parts of some of the parameters."""
    return any(part_of(parameter) for parameter in parameters)
