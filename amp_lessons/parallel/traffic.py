"""The traffic of one training step, on any number of ranks, without any of them.

FSDP2 and tensor parallelism are run as they are, on tensors without values in a process group without
processes; DistributedDataParallel is asked for its buckets. What they call is noted.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_map_only

from amp_lessons._base.arguments import require, require_callable, require_items, require_whole
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.autocast.running import (
    BroughtAlong,
    fake_copy,
    fake_mode_of,
    losses_of,
    on_fake_cpu,
    require_module,
    twins,
)
from amp_lessons.measure.recording import backward
from amp_lessons.parallel.collectives import Collective, CollectiveLog, Communication, rows_of

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

    Bytes are those of rings (``sent_bytes``). Raises TypeError or ValueError for other arguments,
    RuntimeError in a process that is a rank already, and NotImplementedError for a strategy of your own that
    calls other collectives than those.
    """
    dtypes = {"param_dtype": param_dtype, "reduce_dtype": reduce_dtype}
    _check_each(model, world_size, strategy, dtypes, plan, loss_fn)
    _check_together(strategy, dtypes, units, plan)
    named = None if units is None else require_items(units, str, "units", "the name of a module")
    real, (model, given) = model, on_fake_cpu(fake_copy(model), inputs)
    loss_fn = loss_fn and _with_real_tensors(loss_fn, BroughtAlong(_fake_mode(model), twins(real, model)))
    if strategy == "ddp":
        calls = _of_ddp(model, given, loss_fn, world_size, reduce_dtype)
        return Communication("ddp", world_size, rows_of(calls, "ddp"))
    with fake_group(world_size) as mesh, _fake_mode(model), warnings.catch_warnings():
        # of in-place additions, which are its author's
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")
        if strategy == "fsdp2":
            names = units_of(model) if named is None else named
            model = fsdp2(model, mesh, names, param_dtype, reduce_dtype)
        elif strategy == "tp":
            if param_dtype:
                _cast_weights(model, param_dtype)
                given = tree_map_only(
                    Tensor, partial(_cast, dtype=param_dtype), given
                )  # as FSDP2 does itself
            model = parallelize_module(model, mesh, dict(plan or {}))
        else:
            assert callable(strategy)
            with unset_fake_temporarily():  # it may make meshes, which looks at the values of tensors
                model = strategy(model, mesh)
        with CollectiveLog() as log:
            log.phase = "forward"
            losses = _losses(model, given, loss_fn)
            log.phase = "backward"
            backward(losses)
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
    """Raise ValueError for arguments that this strategy would ignore."""
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
        filled = gradient_buckets(model, lambda: backward(_losses(model, given, loss_fn)))
    buffers: Counter[torch.dtype] = Counter()
    for buffer in model.buffers():  # which rank 0 broadcasts before each forward pass
        buffers[buffer.dtype] += buffer.numel()
    calls = [Collective("broadcast", dtype, n, ranks, "forward") for dtype, n in buffers.items()]
    for bucket in filled:
        elements = sum(parameter.numel() for parameter in bucket)
        calls.append(Collective("all-reduce", reduce_dtype or bucket[0].dtype, elements, ranks, "backward"))
    return calls


def _fake_mode(model: nn.Module) -> Any:
    mode = fake_mode_of(model.parameters())
    if mode is None:
        raise ValueError("a model without parameters has nothing to distribute")
    return mode


def _with_real_tensors(loss_fn: LossFn, brought_along: BroughtAlong) -> LossFn:
    """Let a loss bring real tensors along, such as its targets."""

    def loss(output: Any) -> torch.Tensor:
        with brought_along:
            return loss_fn(output)

    return loss


def _losses(model: nn.Module, given: Any, loss_fn: LossFn | None) -> list[torch.Tensor]:
    if isinstance(given, Mapping):
        output = model(**given)
    else:
        output = model(*given) if isinstance(given, tuple) else model(given)
    return losses_of(output, loss_fn)


def _cast_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast parameters and buffers, shared ones once; ``nn.Module.to`` may fail for fake ones."""
    cast: dict[int, Tensor] = {}
    for module in model.modules():
        stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = cast.setdefault(id(tensor), _cast(tensor, dtype))


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    made = tensor.detach().to(dtype)
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made


# --- what DistributedDataParallel sends: its buckets of gradients, by its own rule of assignment.
#
# Its reducer reads tensors' values, so it cannot run on fake ones; but it lets itself be asked for the
# buckets.

_MIB = 2**20
_USUAL_BUCKET_MIB = 25  # where the signature says None: torch/nn/parallel/distributed.py


def gradient_buckets(model: nn.Module, backward: Callable[[], None]) -> list[list[Tensor]]:
    """Return the parameters of each bucket, as they are from the second step on, in the order of sending.

    DDP fills buckets in the order in which gradients are ready; ``backward`` is run to see it.
    """
    ready: list[Tensor] = []
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    handles = [each.register_post_accumulate_grad_hook(ready.append) for each in trained]
    try:
        backward()
    finally:
        for handle in handles:
            handle.remove()
    default = inspect.signature(DistributedDataParallel).parameters["bucket_cap_mb"].default
    others = int((_USUAL_BUCKET_MIB if default is None else default) * _MIB)
    limits = [torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, others]
    dense, order = [False] * len(ready), list(range(len(ready)))
    indices, _ = torch.distributed._compute_bucket_assignment_by_size(ready, limits, dense, order)
    return [[ready[index] for index in bucket] for bucket in indices]


# --- a process group of any size in one process, whose collectives do nothing


@contextmanager
def fake_group(world_size: int) -> Iterator[DeviceMesh]:
    """Make this process rank 0 of ``world_size`` that nobody else joins. Raises RuntimeError in a group.

    The mesh is for the CPU. Make it before any ``FakeTensorMode``: it looks at the values of tensors.
    """
    if dist.is_initialized():
        raise RuntimeError(
            "this process is a rank of a group already; ask before init_process_group, or after "
            "destroy_process_group"
        )
    excepthook = sys.excepthook  # which each init_process_group wraps, so that tracebacks name the rank
    dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (world_size,))
    finally:
        dist.destroy_process_group()
        sys.excepthook = excepthook


# --- how PyTorch's own engines distribute a model over a mesh of ranks


def units_of(model: nn.Module) -> tuple[str, ...]:
    """Name the modules that FSDP2 is usually told to gather one at a time: those of the outermost lists.

    Those are a transformer's blocks; a model without such a list is gathered as a whole.
    """
    lists = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    outermost = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    return tuple(f"{name}.{i}" for name in outermost for i in range(len(model.get_submodule(name))))  # type: ignore[arg-type]


def fsdp2(
    model: nn.Module,
    mesh: DeviceMesh,
    units: Iterable[str],
    param_dtype: torch.dtype | None,
    reduce_dtype: torch.dtype | None,
) -> nn.Module:
    """Shard the ``units``, then what is left of the model. Raises ValueError for a name that is none."""
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
    for name in units:
        try:
            unit = model.get_submodule(name)
        except AttributeError as error:
            raise ValueError(f"units are names of the model's modules; {name!r} is none") from error
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model
