"""Find the models that are trained, and name their modules and parameters as their owners do."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


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
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "").replace(wrapper.rstrip("."), "") if wrapper in f"{name}." else name
    return name


def _roots() -> Iterator[nn.Module]:
    """Yield the living modules that are no part of another."""
    # by type(), not isinstance: asking a proxy object for its class may run anybody's code
    living = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    parts = {id(child) for each in living for child in each._modules.values() if child is not None}
    yield from (each for each in living if id(each) not in parts)


def living_optimizers() -> list[torch.optim.Optimizer]:
    """Return the optimizers there are."""
    return [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]


def is_compiled(model: nn.Module) -> bool:
    """Whether a model, or a part of it, runs as compiled code, which module hooks do not see."""
    return any(
        type(module).__name__ == "OptimizedModule" or module._compiled_call_impl is not None
        for module in model.modules()
    )
