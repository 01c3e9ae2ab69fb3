"""Attention in the worker, with its gradients, and the dtypes in which its products ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from amp_lessons.course.exercises.bed_there import call_with_gradients
from amp_lessons.course.exercises.patients.products_there import ProductDtypes


def attend(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], weights: Tensor
) -> dict[str, Any]:
    """Call a function as ``call_with_gradients`` does; the dtypes of its ``products`` are told as well."""
    products = ProductDtypes()

    def watched(*args: Any, **kwargs: Any) -> Any:
        with products:
            return function(*args, **kwargs)

    told = call_with_gradients(watched, args, kwargs, weights)
    return {**told, "result": {**told["result"], "products": list(products.seen)}}
