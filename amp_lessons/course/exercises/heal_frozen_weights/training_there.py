"""A training in bf16 in the worker: a model whose gains lie where bf16 is coarse, and what it multiplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.exercises.bed_there import Operations, call

INPUTS, HIDDEN = 8, 256  # so many gains that masters in fp16 lose most of their way, whatever the draw
_PRODUCTS_OF_A_LAYER = ("mm", "addmm", "linear")


def classifier() -> nn.Sequential:
    """Make a classifier with a layer norm, whose gains begin at 1."""
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.LayerNorm(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 4))


def train(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Have a model trained; ``args`` are its weights by name, its batches, the epochs and the rate.

    The result has the ``history`` returned, the dtypes of the matrix ``products``, how many ``different``
    sets of weights were multiplied, and model and batches as they are then.
    """
    weights, batches, epochs, lr = args
    model, seen = classifier(), _Weights()
    model.load_state_dict(weights)
    loader = [(x.clone(), y.clone()) for x, y in batches]
    with seen:
        told = call(function, [model, loader, F.cross_entropy, epochs, lr], kwargs)
    result = {
        "history": told["result"],
        "products": list(seen.products),
        "different": len(seen.weights),
        "parameters": dict(model.named_parameters()),
        "batches": loader,
    }
    return {**told, "result": result, "args": []}


class _Weights(Operations):
    """Notices as well which weights of the first layer were multiplied, whoever holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: set[bytes] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in _PRODUCTS_OF_A_LAYER:
            weights = [each for each in args if isinstance(each, Tensor) and each.numel() == INPUTS * HIDDEN]
            in_order = (each.flatten().float().sort()[0] for each in weights)  # they may be transposed
            self.weights |= {each.numpy().tobytes() for each in in_order}
        return super().__torch_dispatch__(func, types, args, kwargs)
