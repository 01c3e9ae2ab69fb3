"""How PyTorch's own engines distribute a model over a mesh of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import parallelize_module


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
        fully_shard(_submodule(model, name), mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def tensor_parallel(
    model: nn.Module, mesh: DeviceMesh, plan: Mapping[str, Any], param_dtype: torch.dtype | None
) -> nn.Module:
    """Split the modules of the plan, the model in ``param_dtype``."""
    return parallelize_module(model.to(param_dtype) if param_dtype else model, mesh, dict(plan))


def _submodule(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        raise ValueError(f"units are names of the model's modules; {name!r} is none") from error
