"""What one training step sends, on any number of ranks, without any of them.

FSDP2 and tensor parallelism are run as they are, on tensors without values in a process group without
processes; DistributedDataParallel is asked for its buckets. What they call is noted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh

from amp_lessons.arguments import require, require_callable, require_items, require_whole
from amp_lessons.autocast.running import fake_copy, fake_mode_of, loss_tensors, on_fake_cpu, require_module
from amp_lessons.parallel import buckets, strategies
from amp_lessons.parallel.collectives import Collective, CollectiveLog
from amp_lessons.parallel.fake_group import fake_group
from amp_lessons.parallel.ledger import Communication, rows_of
from amp_lessons.text.nearest import did_you_mean

LossFn = Callable[[Any], torch.Tensor]
Strategy = Callable[[nn.Module, DeviceMesh], nn.Module]
STRATEGIES = ("ddp", "fsdp2", "tp")


def communication(
    model: nn.Module,
    inputs: Any,
    world_size: int,
    strategy: str | Strategy = "fsdp2",
    *,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    units: Iterable[str] | None = None,
    plan: Mapping[str, Any] | None = None,
    loss_fn: LossFn | None = None,
) -> Communication:
    """Return what a forward and backward pass of ``model(*inputs)`` make each of ``world_size`` ranks send.

    ``inputs`` is a tensor, or a tuple or dict of arguments, as one rank gets them. Model and inputs are
    copied without their values, so they may be of any size; or make them in ``autocast.fake_tensors()``.
    ``loss_fn(output)`` is the loss; without it, the output's own one, or all of the output. ``strategy``:

    - "ddp": DistributedDataParallel, from its second step on. Gradients have their parameters' dtype, or
      ``reduce_dtype``, as with a compression hook; autocast changes neither, so there is no ``param_dtype``.
    - "fsdp2": ``fully_shard`` of each of the ``units``, names of modules, then of the model, with
      ``MixedPrecisionPolicy(param_dtype, reduce_dtype)``. By default the members of ``nn.ModuleList``, which
      are a transformer's blocks.
    - "tp": ``parallelize_module`` by ``plan``, the model in ``param_dtype``. Activations are reduced in the
      dtype that they have: there is no ``reduce_dtype``.
    - a function of model and mesh that returns the model, distributed as it likes, with its own dtypes.

    Bytes are those of the algorithms that send the fewest (``volumes``). Raises TypeError or ValueError for
    other arguments, RuntimeError in a process that is a rank already, and NotImplementedError for a strategy
    of your own that calls other collectives than those.
    """
    dtypes = {"param_dtype": param_dtype, "reduce_dtype": reduce_dtype}
    _check_each(model, world_size, strategy, dtypes, plan, loss_fn)
    _check_together(strategy, dtypes, units, plan)
    named = None if units is None else require_items(units, str, "units", "the name of a module")
    model, given = on_fake_cpu(fake_copy(model), inputs)
    if strategy == "ddp":
        calls = _of_ddp(model, given, loss_fn, world_size, reduce_dtype)
        return Communication("ddp", world_size, rows_of(calls, "ddp"))
    with fake_group(world_size) as mesh, _fake_mode(model), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "FSDP2-wrapped module"
        )  # of in-place additions, which are its author's
        if strategy == "fsdp2":
            names = strategies.units_of(model) if named is None else named
            model = strategies.fsdp2(model, mesh, names, param_dtype, reduce_dtype)
        elif strategy == "tp":
            model = strategies.tensor_parallel(model, mesh, plan or {}, param_dtype)
        else:
            assert callable(strategy)
            with unset_fake_temporarily():  # it may make meshes, which looks at the values of tensors
                model = strategy(model, mesh)
        with CollectiveLog() as log:
            log.phase = "forward"
            losses = _losses(model, _in_dtype(given, param_dtype if strategy == "tp" else None), loss_fn)
            log.phase = "backward"
            _backward(losses)
    name = strategy if isinstance(strategy, str) else "own"
    return Communication(name, world_size, rows_of(log.calls, name))


def _check_each(
    model: Any, world_size: Any, strategy: Any, dtypes: dict[str, Any], plan: Any, loss_fn: Any
) -> None:
    require_module(model)
    require_whole(world_size, "world_size")
    if not isinstance(strategy, str):
        right = f"one of {', '.join(STRATEGIES)}, or a function of model and mesh"
        require_callable(strategy, "strategy", right)
    elif strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r}; {did_you_mean(strategy, STRATEGIES)}")
    for name, dtype in dtypes.items():
        if dtype is not None and not require(dtype, torch.dtype, name, "a dtype or None").is_floating_point:
            raise ValueError(f"{name} is a floating dtype, not {dtype}")
    if plan is not None:
        require(plan, Mapping, "plan", "a dict of names of modules with their ParallelStyle")
    if loss_fn is not None:
        require_callable(loss_fn, "loss_fn", "a function of the model's output that returns the loss")


def _check_together(strategy: str | Strategy, dtypes: dict[str, Any], units: Any, plan: Any) -> None:
    """Refuse what this strategy would not look at: who gives it expects something of it."""
    if units is not None and strategy != "fsdp2":
        raise ValueError('units is for the strategy "fsdp2", which gathers them one at a time')
    if (plan is None) == (strategy == "tp"):
        raise ValueError(
            'plan is for the strategy "tp", which needs it: names of modules with their ParallelStyle'
        )
    if strategy == "ddp" and dtypes["param_dtype"]:
        raise ValueError("param_dtype changes nothing of what DDP sends; give the model such parameters")
    if strategy == "tp" and dtypes["reduce_dtype"]:
        raise ValueError("reduce_dtype is for gradients; tensor parallelism reduces activations as they are")
    if callable(strategy) and any(dtypes.values()):
        raise ValueError("param_dtype and reduce_dtype are the business of a strategy that is a function")


def _of_ddp(
    model: nn.Module, given: Any, loss_fn: LossFn | None, ranks: int, reduce_dtype: torch.dtype | None
) -> list[Collective]:
    with _fake_mode(model):
        model.train()
        filled = buckets.gradient_buckets(model, lambda: _backward(_losses(model, given, loss_fn)))
    calls = [
        Collective("broadcast", dtype, elements, ranks, "forward")
        for dtype, elements in buckets.buffers_by_dtype(model).items()
    ]
    for bucket in filled:
        elements = sum(parameter.numel() for parameter in bucket)
        calls.append(Collective("all-reduce", reduce_dtype or bucket[0].dtype, elements, ranks, "backward"))
    return calls


def _fake_mode(model: nn.Module) -> Any:
    mode = fake_mode_of(model.parameters())
    if mode is None:
        raise ValueError("a model without parameters has nothing to distribute")
    return mode


def _losses(model: nn.Module, given: Any, loss_fn: LossFn | None) -> list[torch.Tensor]:
    if isinstance(given, Mapping):
        output = model(**given)
    else:
        output = model(*given) if isinstance(given, tuple) else model(given)
    losses = [
        loss
        for loss in ([loss_fn(output)] if loss_fn is not None else loss_tensors(output))
        if loss.requires_grad
    ]
    if not losses:
        raise ValueError("there is nothing to train: no output depends on a tensor that requires grad")
    return losses


def _backward(losses: list[torch.Tensor]) -> None:
    torch.autograd.backward(losses, [torch.ones_like(loss) for loss in losses])


def _in_dtype(given: Any, dtype: torch.dtype | None) -> Any:
    """Cast the floating inputs, as FSDP2 does by itself."""
    if dtype is None:
        return given
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, given
    )
