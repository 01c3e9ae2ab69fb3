"""Models that nobody has seen, made anew from a seed, and in a worker what a function leaves of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there

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


def _finite() -> list[nn.Module]:
    block = nn.Sequential(_loud(1500.0), Normalise(), nn.Linear(WIDTH, WIDTH))
    return [Residual(), nn.LayerNorm(WIDTH), block, nn.LayerNorm(WIDTH)]


def _nan() -> list[nn.Module]:
    return [Residual(), nn.LayerNorm(WIDTH), _loud(1500.0), Shares(), nn.Linear(WIDTH, 4)]


def _own_operations() -> list[nn.Module]:
    return [Residual(), nn.LayerNorm(WIDTH), _loud(2000.0), Gated(), nn.Linear(WIDTH, 4)]


def _one_after_the_other() -> list[nn.Module]:
    first = [_loud(1500.0), Lengths(), nn.LayerNorm(WIDTH)]
    second = [_loud(1500.0), Normalise()]
    block = nn.Sequential(*first, *(Residual() for _ in range(6)), *second)
    return [nn.LayerNorm(WIDTH), block, Residual(), nn.Linear(WIDTH, 4)]


def _second_call() -> list[nn.Module]:
    twice = Reused(Normalise(), 1.0, 2000.0)
    return [Residual(), nn.LayerNorm(WIDTH), _loud(1.0), twice, nn.Linear(WIDTH, 4)]


def _first_call() -> list[nn.Module]:
    twice = Reused(Normalise(), 2000.0, 1.0)
    return [nn.LayerNorm(WIDTH), _loud(1.0), Residual(), twice, nn.Linear(WIDTH, 4)]


def _products() -> list[nn.Module]:
    block = nn.Sequential(nn.LayerNorm(WIDTH), _loud(1500.0), Paired(), nn.Linear(WIDTH, WIDTH))
    return [nn.Linear(WIDTH, WIDTH), Residual(), block, nn.Linear(WIDTH, 4)]


def _large_weights() -> list[nn.Module]:
    quiet = nn.Sequential(Scale(1e-3), _loud(5000.0), nn.LayerNorm(WIDTH), Normalise())
    return [Residual(), quiet, nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)]


def _small_weights() -> list[nn.Module]:
    block = Listed(nn.LayerNorm(WIDTH), _loud(1.0), Scale(16_000.0), Averaged())
    return [nn.Linear(WIDTH, WIDTH), block, nn.LayerNorm(WIDTH), Residual()]


def _rows() -> list[nn.Module]:
    block = nn.Sequential(_loud(1.0), LoudInside(), Normalise())
    return [Residual(), nn.LayerNorm(WIDTH), block, nn.Linear(WIDTH, 4)]


def _evenly() -> list[nn.Module]:
    block = nn.Sequential(*_either_or(), Shifted())
    return [Residual(), block, nn.Linear(WIDTH, 4)]


def _one_column() -> list[nn.Module]:
    block = nn.Sequential(*_either_or(), Shifted(columns=1))
    return [Residual(), block, nn.Linear(WIDTH, 4)]


def _one_call_of_three() -> list[nn.Module]:
    block = nn.Sequential(*_either_or(), Reused(Shifted(), 10.0, 1.0, 10.0))
    return [Residual(), block, nn.Linear(WIDTH, 4)]


def _in_place() -> list[nn.Module]:
    first, second = nn.ReLU(inplace=True), nn.SiLU(inplace=True)
    return [nn.Linear(WIDTH, WIDTH), first, nn.Linear(WIDTH, WIDTH), second, nn.Linear(WIDTH, 4)]


KINDS: dict[str, Callable[[], list[nn.Module]]] = {
    "finite": _finite,
    "nan": _nan,
    "own operations": _own_operations,
    "one after the other": _one_after_the_other,
    "second call": _second_call,
    "first call": _first_call,
    "products": _products,
    "large weights": _large_weights,
    "small weights": _small_weights,
    "rows": _rows,
    "evenly": _evenly,
    "one column": _one_column,
    "one call of three": _one_call_of_three,
    "in place": _in_place,
}
"""What makes the parts of a model, by its kind."""


def built(kind: str, seed: int) -> tuple[nn.Module, Tensor]:
    """Make a model of one of ``KINDS`` from a seed, in eval mode, with its batch of (6, ``WIDTH``)."""
    draw, names = torch.Generator().manual_seed(seed), random.Random(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        parts = KINDS[kind]()
    model = nn.Sequential()
    for name, part in zip(names.sample(_NAMES, len(parts)), parts, strict=True):
        model.add_module(name, part)
    return model.eval(), torch.randn(6, WIDTH, generator=draw)


def ask(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], kind: str, seed: int
) -> dict[str, Any]:
    """Call a function on a model and its batch; ``args`` are none.

    The result has the ``names`` that it returned, None where they are no list, in ``words`` what it returned
    else, and what has changed of batch and model.
    """
    model, batch = built(kind, seed)
    before = Snapshot(model, batch)
    called = bed_there.call(function, [model, batch], kwargs)
    answer, names = called["result"], None
    if isinstance(answer, (list, tuple, set, frozenset)) and {*map(type, answer)} <= {str}:
        names = list(answer)
    result = {
        "names": names,
        "words": describe(answer),
        "batch_changed": before.batch_changed,
        "changes": before.changes(),
    }
    return {**called, "result": result, "args": args}


# --- what a model was before an attempt looked at it

_PLAIN = (bool, int, float, str, tuple, type(None))  # attributes that can be compared


class Snapshot:
    """A model with its batch, to be compared with what they are later."""

    def __init__(self, model: nn.Module, batch: Tensor) -> None:
        self._model, self._batch, self._values = model, batch, batch.clone()
        self._state = {
            name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()
        }
        self._modules = dict(model.named_modules())
        self._training = {name: module.training for name, module in self._modules.items()}
        self._attributes = {name: dict(vars(module)) for name, module in self._modules.items()}
        self._hooks = {name: _hooks(module) for name, module in self._modules.items()}
        self._trained = {name: each.requires_grad for name, each in model.named_parameters()}
        self._hooked_everywhere = _has_any_global_hook()

    @property
    def batch_changed(self) -> bool:
        """Whether the batch holds other values now."""
        return not torch.equal(self._batch, self._values)

    def changes(self) -> str:
        """Name what has changed since the snapshot, for a message; "" where nothing has."""
        if self._batch.requires_grad:
            return "the batch requires a gradient"
        now = dict(self._model.named_modules())
        if now != self._modules:
            return "it has other modules than before"
        for name, (before, values) in self._state.items():
            tensor = self._model.state_dict(keep_vars=True)[name]
            if tensor is not before or not torch.equal(tensor, values):
                return f"{name} is not what it was"
        if any(parameter.grad is not None for parameter in self._model.parameters()):
            return "its parameters have gradients"
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad is not self._trained[name]:
                return f"{name}.requires_grad is {parameter.requires_grad}"
            if parameter._backward_hooks:
                return f"a hook is left on {name}"
        if _has_any_global_hook() and not self._hooked_everywhere:
            return "a hook is left on all modules that there are"
        return next(filter(None, map(self._changed, now)), "")

    def _changed(self, name: str) -> str:
        module, shown = self._modules[name], name or "the model"
        if _hooks(module) != self._hooks[name]:
            return f"a hook is left on {shown}"
        if module.training is not self._training[name]:
            return f"{shown} is in {'training' if module.training else 'eval'} mode"
        before, now = self._attributes[name], dict(vars(module))
        others = before.keys() ^ now.keys() or {each for each in now if _other(before[each], now[each])}
        return f"{shown} has another {min(others)}" if others else ""


def _hooks(module: nn.Module) -> dict[str, list[Any]]:
    """Return the hooks of every kind, also of those that later versions of PyTorch may have."""
    kinds = [kind for kind in vars(module) if kind.endswith(("_hooks", "_pre_hooks"))]
    return {kind: list(vars(module)[kind].values()) for kind in kinds if vars(module)[kind]}


def _other(before: Any, now: Any) -> bool:
    return before is not now and not (isinstance(now, _PLAIN) and before == now)
