"""``nn.Linear`` that computes in few bits; its weights stay what they are."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from amp_lessons.fp8.catalogue import require_recipe
from amp_lessons.fp8.functional import linear
from amp_lessons.fp8.history import AmaxHistory
from amp_lessons.fp8.products import require_engine
from amp_lessons.fp8.recipes import Recipe


class ScaledLinear(nn.Linear):
    """``nn.Linear`` by ``fp8.linear``: the same parameters under the same names, master weights as they are.

    A recipe with a history of amax adds ``history``, whose buffers belong into a checkpoint.
    """

    recipe: Recipe
    engine: str
    layer: str
    history: AmaxHistory | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        recipe: str | Recipe = "tensorwise",
        engine: str = "auto",
        **where: Any,
    ) -> None:
        """Make a layer like ``nn.Linear``; ``where`` is its ``device`` and ``dtype``."""
        super().__init__(in_features, out_features, bias, **where)
        self.set_recipe(recipe, engine)

    def set_recipe(self, recipe: str | Recipe, engine: str = "auto", layer: str = "") -> None:
        """Compute by another recipe from now on, with nothing remembered."""
        self.recipe, self.engine, self.layer = require_recipe(recipe), require_engine(engine), layer
        self.history = None
        if self.recipe.amax_history:
            self.history = AmaxHistory(self.recipe.amax_history).to(self.weight.device).train(self.training)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        return linear(
            x, self.weight, self.bias, self.recipe, history=self.history, engine=self.engine, layer=self.layer
        )

    def extra_repr(self) -> str:
        """Add the recipe to what ``nn.Linear`` prints."""
        return f"{super().extra_repr()}, recipe={self.recipe.name}, engine={self.engine}"
