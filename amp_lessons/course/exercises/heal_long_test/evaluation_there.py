"""What runs in the worker for an evaluation: the model that is evaluated, and its loader."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch import nn

from amp_lessons.course.exercises.bed_there import call
from amp_lessons.course.exercises.patients.products_there import ProductDtypes


def evaluate(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], watch: bool
) -> dict[str, Any]:
    """Have a linear model evaluated on batches of samples; ``args`` are its weights, samples, batch size.

    The result is what was returned, the dtypes of the weights afterwards, and those of the matrix products
    where they are watched.
    """
    weight, bias, inputs, labels, batch = args
    model = nn.Linear(1, 1).requires_grad_(False)
    model.weight, model.bias = (nn.Parameter(each, requires_grad=False) for each in (weight, bias))
    model.out_features, model.in_features = weight.shape
    products = ProductDtypes()
    with products if watch else nullcontext():
        loader = list(zip(inputs.split(batch), labels.split(batch), strict=True))
        told = call(function, [model, loader], kwargs)
    weights = [parameter.dtype for parameter in model.parameters()]
    return {**told, "args": [], "result": (told["result"], weights, list(products.seen))}
