"""Training loops of two ranks, right and wrong, as people write them; they run under ``parallel.run``."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import audit

STEPS = 6


def network() -> nn.Module:
    """Return the same small network on each rank; 15 rows do not divide by two."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 15), nn.ReLU(), nn.Linear(15, 3))


def batch(step: int) -> torch.Tensor:
    """Return this rank's batch of a step."""
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))


def trained(model, scaler=None, *, autocast=False, broken=None, sync=True, clip=False):
    """Train, and return this rank's weights; the batch of step ``broken`` overflows on rank 1."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = batch(step) * (1e30 if step == broken and dist.get_rank() == 1 else 1.0)
        if not sync:
            model.require_backward_grad_sync = False  # what no_sync sets
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            loss = model(inputs).float().square().mean()
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    return [getattr(p, "full_tensor", p.clone)().detach() for p in model.parameters()]


def scaler(scale=256.0):
    """Return a scaler whose scale leaves the loops' gradients alone."""
    return torch.amp.GradScaler("cpu", init_scale=scale)


def ddp():
    """Train as it should be: autocast, one scaler a rank, all-reduced gradients."""
    return trained(DistributedDataParallel(network()), scaler(), autocast=True, clip=True)


def ddp_that_overflows():
    """Overflow on rank 1 alone, which both ranks then skip: the reduced gradient carries the inf."""
    return trained(DistributedDataParallel(network()), scaler(), autocast=True, broken=3)


def ddp_without_sync():
    """Never reduce; rank 1 skips a step alone."""
    return trained(DistributedDataParallel(network()), scaler(), autocast=True, broken=3, sync=False)


def ddp_of_two_scales():
    """Scale the loss differently on each rank."""
    return trained(DistributedDataParallel(network()), scaler(256.0 / (1 + dist.get_rank())), autocast=True)


def alone():
    """Train a model of each rank's own, of which rank 1 skips a step."""
    return trained(network(), scaler(), autocast=True, broken=3)


def sharded(model, dtype=torch.bfloat16):
    """Shard a network with FSDP2, layer by layer."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def fsdp2():
    """Train shards in fp32, computing in bf16."""
    return trained(sharded(network()), clip=True)


def fsdp2_with_a_scaler():
    """Train shards in fp32, computing in fp16, with a plain GradScaler; rank 1 overflows."""
    return trained(sharded(network(), torch.float16), scaler(), broken=3, clip=True)


def fsdp2_of_half_masters():
    """Train shards that are in bf16: nothing in fp32 is left."""
    return trained(sharded(network().bfloat16()))


def a_step_of_shards(dtype):
    """Train a step with masters in ``dtype``; return what stood still, what was lost, and what is found."""
    torch.manual_seed(0)
    model, inputs = sharded(nn.Sequential(nn.Linear(16, 16)).to(dtype)), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with audit.watch(model, every=1) as seen:
        before = model[0].weight.to_local().clone()
        model(inputs).float().square().mean().backward()
        optimizer.step()
    still = (model[0].weight.to_local() == before).float().mean().item()
    return still, seen.steps[0].lost_updates, [finding.code for finding in seen.report.findings]


def fsdp1():
    """Train FSDP's flat parameters with its own scaler."""
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"))
    return trained(model, ShardedGradScaler("cpu", init_scale=256.0), autocast=True)


def watched(train, every=2):
    """Return what ``train`` returns, and the report of an audit of it."""
    with audit.watch(every=every) as seen:
        weights = train()
    return weights, seen.report


class Calls(TorchDispatchMode):
    """The names of what is called of the process group, in order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "c10d" in func.namespace:
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def plain_and_watched(train):
    """Return the weights of a training, without and under an audit, what either called, and the report."""
    with Calls() as plain_calls:
        plain = train()
    with Calls() as watched_calls:
        seen, report = watched(train, every=1)
    return (plain, plain_calls.names), (seen, watched_calls.names), report
