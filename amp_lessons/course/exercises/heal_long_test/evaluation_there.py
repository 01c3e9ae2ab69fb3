"""What runs in the worker for an evaluation: the model that is evaluated, and its loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from amp_lessons.course.exercises.bed_there import Operations, call


def evaluate(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Have a linear model evaluated on batches of samples; ``args`` are its weights, samples, batch size.

    The result is what was returned, and the dtypes of the weights afterwards and of the matrix products.
    """
    weight, bias, inputs, labels, batch = args
    classes, features = weight.shape
    model = nn.Linear(features, classes, dtype=weight.dtype).requires_grad_(False)
    model.load_state_dict({"weight": weight, "bias": bias})
    with Operations() as seen:
        loader = list(zip(inputs.split(batch), labels.split(batch), strict=True))
        told = call(function, [model, loader], kwargs)
    weights = [parameter.dtype for parameter in model.parameters()]
    return {**told, "args": [], "result": (told["result"], weights, list(seen.products))}
