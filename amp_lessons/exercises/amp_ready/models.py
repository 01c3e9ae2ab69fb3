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


class Shares(nn.Module):
    """Divide the squares of a row by the largest: of two that overflow the quotient is NaN."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        squares = x * x
        return squares / (1 + squares.amax(-1, keepdim=True))


class Shifted(nn.Module):
    """Add a large number to the first columns and take it away again: they come back in whole steps of it."""

    def __init__(self, columns: int = WIDTH) -> None:
        super().__init__()
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        shift = x.new_tensor([4096.0] * self.columns + [0.0] * (WIDTH - self.columns))
        return x + shift - shift


class Reused(nn.Module):
    """Use one module in several places; only in one of them is it wrong."""

    def __init__(self, shared: nn.Module, *factors: float) -> None:
        super().__init__()
        self.shared, self.factors = shared, factors

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        return torch.stack([self.shared(x * factor) for factor in self.factors]).sum(0)


class Listed(nn.Module):
    """Run modules one after the other, out of a list that is never called itself."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        for part in self.parts:
            x = part(x)
        return x


class LoudInside(nn.Module):
    """Make rows large that are neither the first nor the last."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, ``WIDTH``) to the same shape."""
        factors = torch.ones_like(x[:, :1])
        factors[2:-2] = 2000.0
        return x * factors


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


_Parts = tuple[list[nn.Module], list[tuple[int, str]]]


@dataclass(frozen=True)
class Kind:
    """A kind of model: ``make`` returns its parts, and where the wrong ones are, by place and path below it.

    ``what`` describes it; ``missed`` is the code of the finding where a name is missing, ``named`` of that
    where a module is named that is right.
    """

    what: str
    missed: str
    make: Callable[[], _Parts]
    named: str = "healthy_named"


@dataclass(frozen=True)
class ModelCase:
    """A model in eval mode with a batch, and the names of its modules that need fp32."""

    kind: Kind
    model: nn.Module
    batch: Tensor
    expected: frozenset[str]

    @property
    def what(self) -> str:
        """What is to be said of the model."""
        return self.kind.what


def case_of(kind: str, seed: int) -> ModelCase:
    """Make a model of one of ``KINDS`` from a seed: its weights, its batch, and the names of its parts."""
    draw, names = torch.Generator().manual_seed(seed), random.Random(seed)
    chosen = KINDS[kind]
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        parts, wrong = chosen.make()
    called = dict(zip(names.sample(_NAMES, len(parts)), parts, strict=True))
    model = nn.Sequential()
    for name, part in called.items():
        model.add_module(name, part)
    expected = frozenset(f"{list(called)[place]}{rest}" for place, rest in wrong)
    batch = torch.randn(6, WIDTH, generator=draw)
    return ModelCase(chosen, model.eval(), batch, expected)


def _loud(magnitude: float) -> nn.Linear:
    """Make a layer that returns numbers of this magnitude, in fp16 under autocast."""
    layer = nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(WIDTH, WIDTH) * magnitude / WIDTH**0.5)
    return layer


def _either_or() -> list[nn.Module]:
    """Make modules that return 14.8 or nothing: near 4,096 fp16 takes 14.8 for 16."""
    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        layer.weight.copy_(14.8 * torch.eye(WIDTH))
    return [nn.LayerNorm(WIDTH), Scale(1000.0), nn.Sigmoid(), layer]


def _finite() -> _Parts:
    block = nn.Sequential(_loud(1500.0), Normalise(), nn.Linear(WIDTH, WIDTH))
    return [Residual(), nn.LayerNorm(WIDTH), block, nn.LayerNorm(WIDTH)], [(2, ".1")]


def _nan() -> _Parts:
    return [Residual(), nn.LayerNorm(WIDTH), _loud(1500.0), Shares(), nn.Linear(WIDTH, 4)], [(3, "")]


def _own_operations() -> _Parts:
    return [Residual(), nn.LayerNorm(WIDTH), _loud(2000.0), Gated(), nn.Linear(WIDTH, 4)], [(3, "")]


def _one_after_the_other() -> _Parts:
    first = [_loud(1500.0), Lengths(), nn.LayerNorm(WIDTH)]
    second = [_loud(1500.0), Normalise()]
    block = nn.Sequential(*first, *(Residual() for _ in range(6)), *second)
    return [nn.LayerNorm(WIDTH), block, Residual(), nn.Linear(WIDTH, 4)], [(1, ".1"), (1, ".10")]


def _second_call() -> _Parts:
    twice = Reused(Normalise(), 1.0, 2000.0)
    return [Residual(), nn.LayerNorm(WIDTH), _loud(1.0), twice, nn.Linear(WIDTH, 4)], [(3, ".shared")]


def _first_call() -> _Parts:
    twice = Reused(Normalise(), 2000.0, 1.0)
    return [nn.LayerNorm(WIDTH), _loud(1.0), Residual(), twice, nn.Linear(WIDTH, 4)], [(3, ".shared")]


def _products() -> _Parts:
    block = nn.Sequential(nn.LayerNorm(WIDTH), _loud(1500.0), Paired(), nn.Linear(WIDTH, WIDTH))
    return [nn.Linear(WIDTH, WIDTH), Residual(), block, nn.Linear(WIDTH, 4)], []


def _large_weights() -> _Parts:
    quiet = nn.Sequential(Scale(1e-3), _loud(5000.0), nn.LayerNorm(WIDTH), Normalise())
    return [Residual(), quiet, nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)], []


def _small_weights() -> _Parts:
    block = Listed(nn.LayerNorm(WIDTH), _loud(1.0), Scale(16_000.0), Averaged())
    return [nn.Linear(WIDTH, WIDTH), block, nn.LayerNorm(WIDTH), Residual()], [(1, ".parts.3")]


def _rows() -> _Parts:
    block = nn.Sequential(_loud(1.0), LoudInside(), Normalise())
    return [Residual(), nn.LayerNorm(WIDTH), block, nn.Linear(WIDTH, 4)], [(2, ".2")]


def _evenly() -> _Parts:
    block = nn.Sequential(*_either_or(), Shifted())
    return [Residual(), block, nn.Linear(WIDTH, 4)], [(1, ".4")]


def _one_column() -> _Parts:
    block = nn.Sequential(*_either_or(), Shifted(columns=1))
    return [Residual(), block, nn.Linear(WIDTH, 4)], []


def _one_call_of_three() -> _Parts:
    block = nn.Sequential(*_either_or(), Reused(Shifted(), 10.0, 1.0, 10.0))
    return [Residual(), block, nn.Linear(WIDTH, 4)], [(1, ".4.shared")]


def _in_place() -> _Parts:
    first, second = nn.ReLU(inplace=True), nn.SiLU(inplace=True)
    return [nn.Linear(WIDTH, WIDTH), first, nn.Linear(WIDTH, WIDTH), second, nn.Linear(WIDTH, 4)], []


KINDS = {
    "finite": Kind("a model in which a finite number is wrong", "finite_but_wrong", _finite),
    "nan": Kind("a model in which a quotient is wrong", "nan_unnoticed", _nan),
    "own operations": Kind("a model of which no layer is wrong", "own_operations_missed", _own_operations),
    "one after the other": Kind(
        "a model in which two modules are wrong", "hidden_by_the_first", _one_after_the_other
    ),
    "second call": Kind("a model that uses a module twice", "later_call_missed", _second_call),
    "first call": Kind("a model that uses a module twice", "first_call_missed", _first_call),
    "products": Kind("a model whose products autocast has in fp32", "island_missed", _products),
    "large weights": Kind("a model that needs no island", "island_missed", _large_weights),
    "small weights": Kind("a model with weights like any other's", "island_missed", _small_weights),
    "rows": Kind("a model that makes some rows large", "rows_missed", _rows),
    "evenly": Kind("a model that adds a large number and takes it away", "not_by_norm", _evenly),
    "one column": Kind(
        "a model that adds a large number to one column", "island_missed", _one_column, "not_by_norm"
    ),
    "one call of three": Kind("a model that uses a module three times", "calls_averaged", _one_call_of_three),
    "in place": Kind("a model that works in place", "island_missed", _in_place, "changed_in_place"),
}
