"""Models that nobody has seen: made anew from a seed, with known modules that go wrong in fp16."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

WIDTH = 16
_NAMES = ("mixer", "trunk", "stem", "gate", "core", "adapter", "tower", "bridge", "lens", "pool")


class Normalise(nn.Module):
    """Divide each row by its norm; the sum of squares overflows, and a finite 0 comes out."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return x / (x * x).sum(-1, keepdim=True).sqrt()


class Lengths(nn.Module):
    """Add to a row its length, by a matrix product of the row with itself that overflows to inf."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return x + (x.unsqueeze(-2) @ x.unsqueeze(-1)).squeeze(-1).sqrt()


class Averaged(nn.Module):
    """Average with weights like any layer's; the sum, before it is divided, exceeds fp16."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return nn.functional.linear(x.abs(), self.weight) / WIDTH


class Gated(nn.Module):
    """Multiply what two layers return; neither of them is wrong, their product is."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        product = self.left(x) * self.right(x)
        return product / (1 + product.abs().amax(-1, keepdim=True))


class Residual(nn.Module):
    """Add to the input what a layer makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return x + self.inner(self.norm(x))


class Twice(nn.Module):
    """Use one module in two places; only in one of them are its inputs large."""

    def __init__(self, shared: nn.Module, *factors: float) -> None:
        super().__init__()
        self.shared, self.factors = shared, factors

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        first, second = self.factors
        return self.shared(x * first) + self.shared(x * second)


class Paired(nn.Module):
    """Multiply neighbours by an operation that autocast runs in fp32, on every device."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        products = torch.stack([x, x.roll(1, -1)]).prod(0)
        return products / (1 + products.abs().amax(-1, keepdim=True))


class Scale(nn.Module):
    """Multiply by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return x * self.factor


@dataclass(frozen=True)
class ModelCase:
    """A model in eval mode with a batch, the names that need fp32, and the finding for one that is missing.

    ``what`` describes the model; ``missed`` is the code of the finding where a name is missing.
    """

    what: str
    missed: str
    model: nn.Module
    batch: Tensor
    expected: frozenset[str]


def case_of(kind: str, seed: int) -> ModelCase:
    """Make a model of one of ``KINDS`` from a seed: its weights, its batch, and the names of its parts."""
    draw, names = torch.Generator().manual_seed(seed), random.Random(seed)
    what, missed, make = KINDS[kind]
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        parts, wrong = make()
    called = dict(zip(names.sample(_NAMES, len(parts)), parts, strict=True))
    model = nn.Sequential()
    for name, part in called.items():
        model.add_module(name, part)
    expected = frozenset(f"{list(called)[place]}{rest}" for place, rest in wrong)
    return ModelCase(what, missed, model.eval(), torch.randn(6, WIDTH, generator=draw), expected)


_Parts = tuple[list[nn.Module], list[tuple[int, str]]]


def _loud(magnitude: float) -> nn.Linear:
    """Make a layer that returns numbers of this magnitude, in fp16 under autocast."""
    layer = nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(WIDTH, WIDTH) * magnitude / WIDTH**0.5)
    return layer


def _finite() -> _Parts:
    block = nn.Sequential(_loud(1500.0), Normalise(), nn.Linear(WIDTH, WIDTH))
    return [Residual(), nn.LayerNorm(WIDTH), block, nn.LayerNorm(WIDTH)], [(2, ".1")]


def _own_operations() -> _Parts:
    return [Residual(), nn.LayerNorm(WIDTH), _loud(2000.0), Gated(), nn.Linear(WIDTH, 4)], [(3, "")]


def _one_after_the_other() -> _Parts:
    first = [_loud(1500.0), Lengths(), nn.LayerNorm(WIDTH)]
    second = [_loud(1500.0), Normalise()]
    block = nn.Sequential(*first, *(Residual() for _ in range(6)), *second)
    return [nn.LayerNorm(WIDTH), block, Residual(), nn.Linear(WIDTH, 4)], [(1, ".1"), (1, ".10")]


def _second_call() -> _Parts:
    twice = Twice(Normalise(), 1.0, 2000.0)
    return [Residual(), nn.LayerNorm(WIDTH), _loud(1.0), twice, nn.Linear(WIDTH, 4)], [(3, ".shared")]


def _first_call() -> _Parts:
    twice = Twice(Normalise(), 2000.0, 1.0)
    return [nn.LayerNorm(WIDTH), _loud(1.0), Residual(), twice, nn.Linear(WIDTH, 4)], [(3, ".shared")]


def _products() -> _Parts:
    block = nn.Sequential(nn.LayerNorm(WIDTH), _loud(1500.0), Paired(), nn.Linear(WIDTH, WIDTH))
    return [nn.Linear(WIDTH, WIDTH), Residual(), block, nn.Linear(WIDTH, 4)], []


def _large_weights() -> _Parts:
    quiet = nn.Sequential(Scale(1e-3), _loud(5000.0), nn.LayerNorm(WIDTH), Normalise())
    return [Residual(), quiet, nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)], []


def _small_weights() -> _Parts:
    block = nn.Sequential(nn.LayerNorm(WIDTH), _loud(1.0), Scale(16_000.0), Averaged())
    return [nn.Linear(WIDTH, WIDTH), block, nn.LayerNorm(WIDTH), Residual()], [(1, ".3")]


KINDS: dict[str, tuple[str, str, Callable[[], _Parts]]] = {
    "finite": ("a model in which a finite number is wrong", "finite_but_wrong", _finite),
    "own operations": ("a model of which no layer is wrong", "own_operations_missed", _own_operations),
    "one after the other": (
        "a model in which two modules are wrong",
        "hidden_by_the_first",
        _one_after_the_other,
    ),
    "second call": ("a model that uses a module twice", "later_call_missed", _second_call),
    "first call": ("a model that uses a module twice", "first_call_missed", _first_call),
    "products": ("a model whose products autocast has in fp32", "island_missed", _products),
    "large weights": ("a model that needs no island", "island_missed", _large_weights),
    "small weights": ("a model with weights like any other's", "island_missed", _small_weights),
}
