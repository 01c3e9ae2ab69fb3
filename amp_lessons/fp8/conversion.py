"""A model's linear layers exchanged for ones that compute in few bits, and what was left alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from amp_lessons._base.arguments import require, require_items
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons._base.text.tables import Table
from amp_lessons.fp8.layer import ScaledLinear
from amp_lessons.fp8.products import DTYPES, require_engine
from amp_lessons.fp8.recipes import Recipe, require_recipe

Model = TypeVar("Model", bound=nn.Module)
_USUAL_HEAD = ("head",)


@dataclass(frozen=True)
class Layer:
    """One layer with weights: its name in the model, its class, and what became of it, and why."""

    name: str
    kind: str
    parameters: int
    converted: bool
    reason: str


@dataclass(frozen=True)
class Conversion:
    """The report of ``convert``: each layer that has weights of its own, in the model's order."""

    recipe: Recipe
    layers: tuple[Layer, ...]

    @property
    def converted(self) -> tuple[str, ...]:
        """The names of the layers that compute in few bits now."""
        return tuple(layer.name for layer in self.layers if layer.converted)

    @property
    def kept(self) -> dict[str, str]:
        """The names of the layers that were left alone, and why."""
        return {layer.name: layer.reason for layer in self.layers if not layer.converted}

    def table(self) -> Table:
        """Return it as a table."""
        rows = [
            (
                f"`{each.name}`" if each.name else "(the model)",
                each.kind,
                each.parameters,
                self.recipe.name if each.converted else "kept",
                each.reason,
            )
            for each in self.layers
        ]
        caption = f"{self.recipe.name}: {len(self.converted)} of {len(self.layers)} layers converted"
        return Table(("layer", "class", "weights", "computes in", "why"), rows, caption)

    def __str__(self) -> str:
        return str(self.table())

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_(include, exclude)


def convert(
    model: Model,
    recipe: str | Recipe = "tensorwise",
    keep: Iterable[str] = _USUAL_HEAD,
    *,
    engine: str = "auto",
) -> Model:
    """Let every ``nn.Linear`` of ``model`` compute by ``recipe``, in place, and return the model.

    Layers keep their parameters, hooks and names, so that optimizers and checkpoints stay good; weights and
    biases in 16 bits become fp32, for they are the masters. ``keep`` names layers to leave alone: "head"
    means every layer of that name, and everything inside one, "blocks.0.head" that one. ``model.conversion``
    says what was done. Raises TypeError or ValueError for anything else, and where a name in ``keep`` is that
    of no layer (the default "head" need not be there).
    """
    require(model, nn.Module, "model", "an nn.Module")
    recipe, engine = require_recipe(recipe), require_engine(engine)
    kept = require_items(keep, str, "keep", "the name of a layer such as 'head'")
    layers = [(name, layer) for name, layer in model.named_modules() if _own_weights(layer)]
    names = [name for name, _ in model.named_modules() if name]
    for wanted in kept if kept != _USUAL_HEAD else ():
        if not any(_is_named(name, wanted) for name in names):
            nearest = did_you_mean(wanted[:60], names)
            raise ValueError(f"keep names no layer: there is no {wanted!r:.60}; {nearest}")
    report = []
    for name, layer in layers:
        keeps = _reason_to_keep(name, layer, kept)
        kind = "Linear" if keeps is None else type(layer).__name__
        reason = keeps or _exchange(layer, recipe, engine, name)
        report.append(Layer(name, kind, _own_weights(layer), keeps is None, reason))
    model.conversion = Conversion(recipe, tuple(report))  # type: ignore[assignment]
    return model


def _own_weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))


def _reason_to_keep(name: str, layer: nn.Module, kept: tuple[str, ...]) -> str | None:
    wanted = next((each for each in kept if _is_named(name, each)), None)
    if wanted is not None:
        return f"keep names {wanted!r}"
    others = {parameter.dtype for parameter in layer.parameters(recurse=False)} - set(DTYPES)
    if type(layer) in (nn.Linear, ScaledLinear):
        return f"its weights are {others.pop()}" if others else None
    if isinstance(layer, nn.Linear):
        return "a class of its own: who owns it may not call it, but read its weight"
    return "no nn.Linear"


def _is_named(name: str, wanted: str) -> bool:
    """Say whether ``wanted`` is a layer's whole name, its last part, or that of something it is inside of."""
    return f".{wanted}." in f".{name}."


def _exchange(layer: nn.Module, recipe: Recipe, engine: str, name: str) -> str:
    """Make a ScaledLinear of an nn.Linear that stays the same object; say what was done to its weights."""
    layer.__class__ = ScaledLinear
    assert isinstance(layer, ScaledLinear)
    layer.set_recipe(recipe, engine, name)
    reduced = [parameter for parameter in layer.parameters(recurse=False) if parameter.dtype != torch.float32]
    for parameter in reduced:
        parameter.data = parameter.data.float()
    return "nn.Linear; its weights became fp32 masters" if reduced else "nn.Linear"
