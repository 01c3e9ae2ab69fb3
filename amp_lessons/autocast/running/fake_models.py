"""Models without memory: tensors that have a shape, a dtype and a device, but no data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from amp_lessons.autocast.running.watch import unwatched

# --- gradients for what looks at a training step, whatever mode its caller is in


@contextmanager
def gradients_on() -> Iterator[None]:
    """Let autograd record, also where ``torch.no_grad`` or ``torch.inference_mode`` is on around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def as_in_inference_mode() -> Iterator[None]:
    """Do what inference_mode does to gradients and autocast, and let operations be watched.

    Under inference_mode itself an operation that is made of others is not taken apart where it can be seen.
    """
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # a weight is cast anew at each use
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def for_autograd(value: Any) -> Any:
    """Make the tensors of a nested value such as a loader yields.

    Autograd refuses those that were made under inference_mode, and from those that another module has
    computed it goes on into that module.
    """
    found = (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
    is_strange = any(leaf.is_inference() or leaf.grad_fn is not None for leaf in found)
    return tree_map_only(torch.Tensor, _normal, value) if is_strange else value


def require_normal_parameters(model: nn.Module) -> None:
    """Refuse a model that was made under inference_mode: no mode makes autograd take it.

    Raises ``ValueError`` for it.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.is_inference():
            raise ValueError(
                f"{name} was made under torch.inference_mode, so it cannot be trained; make the model outside"
            )


def _normal(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_inference():
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return tensor if tensor.grad_fn is None else tensor.detach().requires_grad_()


# --- models on fake tensors

_GROUPED_PRODUCT = "aten::_grouped_mm"
_NORMS = frozenset(f"aten::native_{kind}_norm" for kind in ("batch", "group", "layer"))
_TRUNCATED_NORMAL = "_no_grad_trunc_normal_"
_truncated_normal = getattr(nn.init, _TRUNCATED_NORMAL)


@contextmanager
def fake_tensors() -> Iterator[FakeTensorMode]:
    """Make every new tensor of the block fake, so that a model of any size is built in no memory.

    Build the model and its inputs in the same block::

        with autocast.fake_tensors():
            model, tokens = GPT2LMHeadModel(config), torch.zeros(1, 1024, dtype=torch.long)
        ledger = autocast.record(model, tokens)
    """
    # This initialisation looks at the values that it has drawn, so it cannot be done without values.
    with patch.object(nn.init, _TRUNCATED_NORMAL, _unless_fake), FakeTensorMode() as mode:
        yield mode


@gradients_on()  # or autograd would refuse a copy made under inference_mode
def fake_copy(model: nn.Module) -> nn.Module:
    """Copy a model without its memory: shapes, dtypes and shared weights, but no values.

    Raises ``TypeError`` for what is no module.
    """
    require_module(model)
    with FakeCopyMode(fake_mode_of(model.parameters()) or FakeTensorMode()):
        return copy.deepcopy(model)


def on_fake_cpu(model: nn.Module, inputs: Any) -> tuple[nn.Module, Any]:
    """Return ``model`` and its (nested) ``inputs`` on fake CPU tensors; a fake CPU model is not copied."""
    require_module(model)
    inputs = for_autograd(inputs)
    mode = fake_mode_of(_tensors(model))
    if mode is None:
        model = fake_copy(model)
        mode = fake_mode_of(_tensors(model)) or FakeTensorMode()
    with mode:
        if any(tensor.device.type != "cpu" for tensor in _tensors(model)):
            _move(model)
        return model, _all_fake(inputs, mode)


class RealResults(TorchDispatchMode):
    """Give fake tensors the results that real ones have, where PyTorch's fake kernels differ.

    From a half-precision input and float32 weights real norms return float32 statistics, fake ones half. Real
    products of groups, such as experts, take float32 and float16 too; fake ones ask for bfloat16.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else each call goes through a wrapper for the compiler, which nobody uses here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name == _GROUPED_PRODUCT and args[0].dtype is args[1].dtype:
            halves = [each.to(torch.bfloat16) for each in args[:2]]
            return func(*halves, *args[2:], **kwargs).to(args[0].dtype)
        result = func(*args, **kwargs)
        if name not in _NORMS:
            return result
        single = any(isinstance(arg, torch.Tensor) and arg.dtype is torch.float32 for arg in args)
        return result[0], *(part.float() if single else part for part in result[1:])


class BroughtAlong(TorchFunctionMode):
    """Take real tensors that code brings along for fake ones: a loss its targets, a model its module's.

    ``twins`` are the fake tensors that stand for some of them, by their ids: a model's parameters, of which a
    penalty is computed. The others get one each, on the CPU, where a fake model's are. Single numbers stay
    real, and whatever asks for the values of a real one has them.
    """

    def __init__(self, mode: FakeTensorMode, twins: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self._mode, self._twins = mode, dict(twins)
        self._real: list[torch.Tensor] = []  # kept, so that no other tensor gets the id of one

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
        if not any(map(_is_real, tensors)):
            return func(*args, **kwargs)
        numbers = all(_is_real(each) and each.dim() == 0 and not each.requires_grad for each in tensors)
        if numbers or getattr(func, "__name__", "") in _ASK_FOR_VALUES:
            with unwatched(), _disable_current_modes():
                return func(*args, **kwargs)
        args, kwargs = tree_map(lambda each: self._twin(each) if _is_real(each) else each, (args, kwargs))
        return func(*args, **kwargs)

    def _twin(self, real: torch.Tensor) -> torch.Tensor:
        if id(real) not in self._twins:
            self._real.append(real)
            with unwatched(), _disable_current_modes():  # nobody is to see it made
                self._twins[id(real)] = _all_fake(for_autograd(real), self._mode)
        return self._twins[id(real)]


_ASK_FOR_VALUES = {"item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__"}


_PLAIN = (torch.Tensor, nn.Parameter)  # a subclass may hold fake tensors, and so may what vmap hands on


def _is_real(value: Any) -> bool:
    return type(value) in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(value)


def twins(model: nn.Module, fake: nn.Module) -> dict[int, torch.Tensor]:
    """Return the tensors of a fake copy of a model by the ids of those that they stand for."""
    return {id(real): twin for real, twin in zip(_tensors(model), _tensors(fake), strict=True)}


def fake_mode_of(tensors: Iterable[torch.Tensor]) -> FakeTensorMode | None:
    """Return the block in which fake tensors were made, None if all are real.

    Raises ``ValueError`` for fake tensors from several blocks, which cannot meet in one operation.
    """
    modes = {id(tensor.fake_mode): tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)}
    if len(modes) > 1:
        raise ValueError(
            "these fake tensors come from different blocks; make model and inputs in the same one "
            "(a model that deep-copies its layers while it is made brings its own)"
        )
    return next(iter(modes.values()), None)


def made_fake(value: Any, mode: FakeTensorMode) -> Any:
    """Replace the real tensors of (nested) inputs by fake ones of the same block as the model's."""
    return tree_map_only(
        torch.Tensor, lambda t: t if isinstance(t, FakeTensor) else mode.from_tensor(t), value
    )


def _all_fake(value: Any, mode: FakeTensorMode) -> Any:
    """Replace real tensors by fake ones on the CPU, where a model's are, wherever the real ones lie."""
    return tree_map_only(torch.Tensor, _like_on_cpu, made_fake(value, mode))


def require_module(model: Any) -> None:
    """Refuse what is no module. Raises ``TypeError`` for it."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")


def _unless_fake(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor if isinstance(tensor, FakeTensor) else _truncated_normal(tensor, *args, **kwargs)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return list(chain(model.parameters(), model.buffers()))


def _move(model: nn.Module) -> None:
    """Replace every parameter and buffer by its like on the CPU; what was shared stays shared."""
    moved: dict[int, torch.Tensor] = {}
    for module in model.modules():
        stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = moved.setdefault(id(tensor), _like_on_cpu(tensor))


def _like_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    like = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(like, requires_grad=tensor.requires_grad)
    return like.requires_grad_(tensor.requires_grad)
