"""Models that nobody has seen, made anew from a seed, and in a worker what a function leaves of them."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there

_WIDTH = 16
_NAMES = ("mixer", "trunk", "stem", "gate", "core", "adapter", "tower", "bridge", "lens", "pool")


class Own(nn.Module):
    """Operations of its own: ``compute`` is given (rows, width) and the module's parts."""

    def __init__(self, compute: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.compute = compute
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, width) to the same shape."""
        return self.compute(x, *self.children())


def _layer(magnitude: float | None = None) -> nn.Linear:
    """Make a layer, on request one that returns numbers of a magnitude, in fp16 under autocast."""
    layer = nn.Linear(_WIDTH, _WIDTH)
    if magnitude is not None:
        nn.init.normal_(layer.weight, std=magnitude / _WIDTH**0.5)
    return layer


def _norm() -> nn.Module:
    return nn.LayerNorm(_WIDTH)


def _residual() -> nn.Module:
    return Own(lambda x, norm, inner: x + inner(norm(x)), norm=_norm(), inner=_layer())


def _normalise() -> nn.Module:
    """Divide each row by its norm; the sum of squares overflows, and a finite 0 comes out."""
    return Own(lambda x: x / (x * x).sum(-1, keepdim=True).sqrt())


def _by_its_largest(x: Tensor) -> Tensor:
    return x / (1 + x.abs().amax(-1, keepdim=True))


class _NormaliseInPlace(nn.Module):
    """The same, in its input, which does not overflow any more when it is kept and given once more."""

    inplace = True

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, width) to the same shape."""
        norm = (x * x).sum(-1, keepdim=True).sqrt()
        return x.div_(norm) if self.inplace else x / norm


def _squares() -> nn.Module:
    """Square, and divide by the largest: of two that overflow the quotient is NaN."""
    return Own(lambda x: _by_its_largest(x * x))


def _gated(magnitude: float | None = None) -> nn.Module:
    """Multiply what two layers return; neither of them is wrong, their product is."""
    layers = {"left": _layer(magnitude), "right": _layer(magnitude)}
    return Own(lambda x, left, right: _by_its_largest(left(x) * right(x)), **layers)


def _multiplied() -> nn.Module:
    """Multiply neighbours, by an operation that autocast runs in fp32, on every device."""
    return Own(lambda x: _by_its_largest(torch.stack([x, x.roll(1, -1)]).prod(0)))


def _reused(shared: nn.Module, *factors: float) -> nn.Module:
    """Use one module in several places; only in one of them is it wrong."""
    return Own(lambda x, shared: torch.stack([shared(x * each) for each in factors]).sum(0), shared=shared)


def _in_a_list(*parts: nn.Module) -> nn.Module:
    """Run modules one after the other, out of a list that is never called itself."""
    return Own(lambda x, parts: reduce(lambda x, part: part(x), parts, x), parts=nn.ModuleList(parts))


def _shifted(columns: int, large: float = 13.3) -> list[nn.Module]:
    """Make modules that return a number and its negative by turns, whatever is given to the first.

    The last adds 4,096 to columns and takes it away. Near 4,096 fp16 takes 13.3 for 12, and -13.3 for -14;
    15.2 and -15.2 become 16 and -16.
    """
    signs = torch.tensor([1.0, -1.0]).repeat(_WIDTH // 2)
    layer, shift = nn.Linear(_WIDTH, _WIDTH, bias=False), torch.zeros(_WIDTH)
    layer.weight.data, shift[:columns] = torch.diag(large * signs), 4096.0
    shifts = Own(lambda x: x + shift.to(x.dtype) - shift.to(x.dtype))
    return [_norm(), Own(lambda x: 1000 + x.abs()), nn.Tanh(), layer, shifts]


# what is special about a model, by what is wrong in it; all else in a model is like any other's
_BLOCKS: dict[str, Callable[[], nn.Module]] = {
    "a finite number is wrong": lambda: nn.Sequential(
        _layer(1500), _multiplied(), _layer(1500), _normalise(), _layer()
    ),
    "a quotient is wrong": lambda: nn.Sequential(_layer(1500), _squares()),
    "no layer is wrong by itself": lambda: nn.Sequential(_layer(2000), _gated()),
    "no part is wrong by itself": lambda: _gated(2000),
    "two modules are wrong": lambda: nn.Sequential(
        _layer(1500), _squares(), _norm(), *(_residual() for _ in range(6)), _layer(1500), _normalise()
    ),
    "one call of a module is wrong": lambda: nn.Sequential(
        _layer(1), _reused(_normalise(), 1.0, 2000.0), _layer(1), _reused(_normalise(), 2000.0, 1.0)
    ),
    "some rows are large": lambda: _in_a_list(
        _layer(1), Own(lambda x: torch.cat([x[:2], x[2:-2] * 2000.0, x[-2:]])), _normalise()
    ),
    "a large number is added to all": lambda: nn.Sequential(*_shifted(_WIDTH)),
    "a large number is added to one column": lambda: nn.Sequential(*_shifted(1, 15.2)),
    "small numbers are wrong": lambda: nn.Sequential(_layer(1), Own(lambda x: (x * 1e-4) * (x * 1e-4) * 1e3)),
    "one row is tiny": lambda: nn.Sequential(Own(lambda x: torch.cat([x[:1] * 1e-9, x[1:]])), nn.Tanh()),
    "one of three calls is wrong": lambda: nn.Sequential(
        *_shifted(_WIDTH)[:-1], _reused(_shifted(_WIDTH)[-1], 10.0, 1.0, 10.0)
    ),
    "modules work in place": lambda: nn.Sequential(
        _layer(), nn.ReLU(inplace=True), _layer(), nn.SiLU(inplace=True)
    ),
    "a module works in its own input": lambda: nn.Sequential(_layer(1500), _NormaliseInPlace()),
}


def built(kind: str, seed: int) -> tuple[nn.Module, Tensor, str]:
    """Make a model of a kind from a seed, in eval mode, with its batch; return the name of its block, too.

    A model that is wrong by itself is nothing but its block, whose name is "".
    """
    draw = random.Random(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        before = [*(_residual() for _ in range(draw.randint(0, 2))), _norm()]
        parts, batch = [*before, _BLOCKS[kind](), _residual(), _layer()], torch.randn(6, _WIDTH)
    if kind == "no part is wrong by itself":
        return parts[len(before)].eval(), batch, ""
    names = draw.sample(_NAMES, len(parts))
    model = nn.Sequential(OrderedDict(zip(names, parts, strict=True)))
    return model.eval(), batch, names[len(before)]


def ask(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], kind: str, seed: int
) -> dict[str, Any]:
    """Call a function on a model and its batch; ``args`` are none.

    The result has the ``names`` that it returned, None where they are no list, in ``words`` what it returned
    else, and what it ``changed`` of batch or model, "" if nothing.
    """
    model, batch, _ = built(kind, seed)
    before = _state(model, batch)
    called = bed_there.call(function, [model, batch], kwargs)
    after, answer = _state(model, batch), called["result"]
    listed = isinstance(answer, (list, tuple, set, frozenset)) and {*map(type, answer)} <= {str}
    result = {
        "names": list(answer) if listed else None,
        "words": describe(answer),
        "changed": next((key for key in {**before, **after} if before.get(key) != after.get(key)), ""),
    }
    return {**called, "result": result, "args": args}


def _state(model: nn.Module, batch: Tensor) -> dict[str, Any]:
    """Return what can be changed of a model and its batch, by the names that it has."""
    state: dict[str, Any] = {"the global hook of torch.nn.modules.module": _has_any_global_hook()}
    for name, tensor in {"batch": batch, **model.state_dict(keep_vars=True)}.items():
        state[name] = id(tensor), tensor.tolist()
        state[f"{name}.requires_grad"] = tensor.requires_grad
        state[f"{name}.grad"] = tensor.grad is None
        state[f"{name}._backward_hooks"] = bool(tensor._backward_hooks)
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            plain = isinstance(value, (bool, int, float, str, tuple, type(None)))
            held = {key: id(each) for key, each in value.items()} if isinstance(value, dict) else id(value)
            state[f"{name or 'model'}.{attribute}"] = value if plain else held
    return state
