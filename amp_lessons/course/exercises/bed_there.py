"""What of ours runs in a worker, beside the learner's code: calls, and what they leave behind. No answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import autocast
from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.serving import told
from amp_lessons.devices import FP32_SWITCHES

_for_ever = ExitStack()


def by_cuda_rules() -> None:
    """Let autocast follow CUDA's rules from here on, in this process."""
    _for_ever.enter_context(autocast.cuda_rules())


def uncallable(value: Any, count: int, keywords: list[str]) -> list[str] | None:
    """Say why a value cannot be called with so many arguments and these keywords; None where it can.

    The first text is "not_a_function" or "signature", the second describes the value or the mismatch.
    """
    if not callable(value):
        return ["not_a_function", describe(value)]
    try:
        inspect.signature(value).bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError as error:
        return ["signature", str(error)]
    except ValueError:  # a built-in without a signature: calling it will tell
        pass
    return None


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function; return its result, its arguments afterwards, and what of PyTorch it left changed."""
    before = settings()
    result = function(*args, **kwargs)
    return {"result": result, "args": args, "left": changed_since(before)}


def attempted(code: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, list[Any] | None]:
    """Return what code returns, and what is told of the exception that it raised; None for either."""
    try:
        return code(*args, **kwargs), None
    except Exception as error:
        return None, told(error)


def call_noting_operations(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Call a function; the result holds what was returned, and the operations that ran, by ATen's names."""
    with Operations() as seen:
        told = call(function, args, kwargs)
    return {**told, "result": [told["result"], sorted(seen.names)]}


def call_with_graph(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function on a first argument that has a graph; say whether its result has one too."""
    given = args[0].requires_grad_() * 1.0
    told = call(function, [given, *args[1:]], kwargs)
    result = told["result"]
    graph = isinstance(result, torch.Tensor) and result.requires_grad
    return {**told, "args": [given.detach(), *told["args"][1:]], "noticed": graph}


def call_with_gradients(
    function: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    weights: torch.Tensor,
    autocast_to: torch.dtype | None = None,
) -> dict[str, Any]:
    """Call a function of which each argument that is a tensor of fractions requires gradients.

    The result holds what was ``returned`` under autocast to a dtype, if any, the dtypes of its matrix
    ``products``, and the gradients of its sum, times ``weights``, by those arguments: None where it has no
    graph, or an argument is not in it.
    """
    floats = [each for each in args if isinstance(each, torch.Tensor) and each.is_floating_point()]
    leaves = [each.requires_grad_() for each in floats]
    given = [each.clone() if isinstance(each, torch.Tensor) else each for each in args]  # may be changed
    with torch.autocast("cpu", autocast_to) if autocast_to else nullcontext(), Operations() as seen:
        told = call(function, given, kwargs)
    result, gradients = told["result"], None
    if isinstance(result, torch.Tensor) and result.requires_grad and result.shape == weights.shape:
        loss = (result.float() * weights).sum()
        gradients = list(torch.autograd.grad(loss, leaves, allow_unused=True))
    return {**told, "result": {"returned": result, "gradients": gradients, "products": list(seen.products)}}


_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "linear", "mkldnn_linear")
_ATTENTION = "scaled_dot_product"


class Operations(TorchDispatchMode):
    """Note which operations of PyTorch run, below autocast and autograd, backward passes included.

    ``names`` are ATen's without leading underscores, ``products`` the dtypes in which matrix products ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.products: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        self.names.add(name)
        if name in _PRODUCTS or name.startswith(_ATTENTION):
            factors = args[:3]  # of attention: behind them stand sums that its kernels keep in fp32
            self.products |= {each.dtype for each in factors if isinstance(each, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def value_of(value: Any) -> Any:
    """Return a value that was handed in, or what a function makes of it; a mapping as a dict."""
    value = value() if callable(value) else value
    return dict(value) if isinstance(value, Mapping) else value


def call_each(function: Callable[..., Any], arguments: list[list[Any]]) -> dict[str, Any]:
    """Call a function with one list of arguments after another, as long as it raises nothing."""
    results: list[Any] = []
    try:
        for args in arguments:
            results.append(function(*args))
    except Exception as error:
        return {"results": results, "raised": told(error)}
    return {"results": results, "raised": None}


def settings() -> dict[str, Any]:
    """Return what of PyTorch's settings a learner's code may leave changed, by name."""
    torch.autocast_increment_nesting()
    return {
        "gradients": torch.is_grad_enabled(),
        "autocast for CPU": torch.is_autocast_enabled("cpu"),
        "autocast for CUDA": torch.is_autocast_enabled("cuda"),
        "the default dtype of autocast": torch.get_autocast_dtype("cpu"),
        "the number of autocast contexts not left": torch.autocast_decrement_nesting(),
        "autocast's cache": torch.is_autocast_cache_enabled(),
        "the default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the number of threads": torch.get_num_threads(),
        "anomaly detection": torch.is_anomaly_enabled(),
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "the precision of fp32 products": [switch.read() for switch in FP32_SWITCHES],
    }


def changed_since(before: dict[str, Any]) -> list[str]:
    """Say what of the settings is another than ``before``, and what it is now."""
    words = {True: "on", False: "off"}
    return [
        f"{name} {words[now] if isinstance(now, bool) else f'= {now}'}"
        for name, now in settings().items()
        if now != before[name]
    ]
