"""Proofs of the answers about training on many GPUs: by simulation, by bookkeeping, and on two processes."""

from __future__ import annotations

import inspect
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

from amp_lessons import formats, parallel
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _step


def bf16_reduce() -> None:
    """Add gradients of many ranks around a ring in bf16 and in fp32, and as an all-to-all of bf16 would."""
    spread, few, many = 0.1, 8, 1024
    gradients = parallel.rank_gradients(many, noise=spread)
    of_few, of_many = (parallel.reduction(gradients[:n], torch.bfloat16) for n in (few, many))
    assert parallel.reduction(gradients, torch.float32).relative_error < 1e-4
    assert of_many.size < 0.5
    # Sent in bf16, added up in fp32 by the rank that keeps the sum, and rounded once
    sent = gradients.bfloat16().float()
    for n in (few, many):
        once = formats.relative_error(sent[:n].mean(0).bfloat16().float(), gradients[:n].mean(0))
        assert once < min(2**-8, of_few.relative_error)  # of one rounding, however many ranks


def ring_or_tree() -> None:
    """Compare a ring and a tree by how often a partial sum is rounded, and by what is wrong at the end."""
    ranks, spread = 1024, 0.1
    gradients = parallel.rank_gradients(ranks, noise=spread)
    ring, tree = (parallel.growth(gradients, torch.bfloat16, way, ranks=(ranks,)) for way in ("ring", "tree"))
    for way in ("ring", "tree"):
        assert parallel.growth(gradients, torch.float32, way, ranks=(ranks,)).errors[0] < 1e-4


def ddp_skips() -> None:
    """Let one of two real processes overflow, under DDP and with shards; then clip a NaN."""

    def train() -> tuple[float, float]:
        layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(layer.weight)
        model = DistributedDataParallel(layer)
        optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=1.0), _scaler()
        loss = model(torch.ones(1, 1)).sum() * (math.inf if dist.get_rank() == 1 else 1.0)
        _step(optimizer, loss, scaler)
        return layer.weight.item(), scaler.get_scale()

    start = _scaler().get_scale()
    assert parallel.run(train, 2) == [(1.0, start / 2)] * 2  # both skipped, both backed off

    def scale_with_shards(dtensors: bool) -> float:
        """Let the shard of rank 1 overflow, and return what this rank's scale becomes."""
        weight, gradient = torch.ones(2), torch.full((2,), math.inf if dist.get_rank() == 1 else 1.0)
        if dtensors:
            mesh = init_device_mesh("cpu", (2,))
            weight, gradient = (DTensor.from_local(each, mesh, [Shard(0)]) for each in (weight, gradient))
        parameter, scaler = nn.Parameter(weight), _scaler()
        parameter.grad = gradient
        scaler.scale(torch.ones(()))  # the scaler makes its scale when it is first used
        scaler.step(torch.optim.SGD([parameter], lr=1.0))
        scaler.update()
        return scaler.get_scale()

    assert parallel.run(scale_with_shards, 2, False) == [start, start / 2]  # plain shards: the ranks part
    assert parallel.run(scale_with_shards, 2, True) == [start / 2, start / 2]  # DTensors: their mesh agrees
    for bad, spoilt in ((math.nan, 8), (math.inf, 1)):  # what a rank has after the all-reduce
        weight = nn.Parameter(torch.ones(8))
        weight.grad = torch.ones(8)
        weight.grad[0] = bad
        assert not nn.utils.clip_grad_norm_([weight], 1.0).isfinite()
        assert weight.grad.isnan().sum() == spoilt
        assert weight.grad.count_nonzero() == spoilt  # the others became NaN, or zero


def no_sync() -> None:
    """Make a step under `no_sync` on two real processes, of which one overflows; then one that is synced."""

    def train(synced: bool) -> list[tuple[float, float]]:
        """Return weight and scale after each of two windows; the first has an inf, and two micro-batches."""
        layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(layer.weight)
        model = DistributedDataParallel(layer)
        optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.25), _scaler()
        seen: list[tuple[float, float]] = []
        for factor in (math.inf if dist.get_rank() == 1 else 1.0, 1.0):
            optimizer.zero_grad()
            with model.no_sync():
                scaler.scale(model(torch.ones(1, 1)).sum() * factor).backward()
            if synced or seen:  # the last micro-batch outside of no_sync
                scaler.scale(model(torch.ones(1, 1)).sum() * 0).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append((layer.weight.item(), scaler.get_scale()))
        return seen

    first, second = parallel.run(train, 2, False)
    assert first[0][1] == 2 * second[0][1]
    assert first[1][0] != second[1][0]  # the next all-reduce repairs nothing, and nothing is raised
    right, also_right = parallel.run(train, 2, True)
    assert right[0] == also_right[0] == (1.0, second[0][1])  # the earlier micro-batch's inf is in the sum


def mean_of_means() -> None:
    """Average the gradients of two ranks with 90 and 10 tokens, as DDP does and by token."""
    (many, few), (at_many, at_few) = tokens, gradients = (90, 10), (1.0, 5.0)
    of_means = parallel.reduction(torch.tensor(gradients)[:, None], torch.float32, op="ddp").result.item()
    of_tokens = sum(n * g for n, g in zip(tokens, gradients, strict=True)) / sum(tokens)
    # what mends it: each rank's sum over the tokens of all, times the ranks that DDP divides by
    weighted = sum(g * n / sum(tokens) * 2 for n, g in zip(tokens, gradients, strict=True)) / 2
    assert math.isclose(weighted, of_tokens)


def compress_hook() -> None:
    """Send small gradients of 64 ranks in fp16: divided before the sum, as the hook does, and after it."""
    hook = inspect.getsource(default_hooks._compress_hook)
    assert -1 < hook.index(".div_(") < hook.index("all_reduce(")
    ranks, small = 64, 1e-6
    gradients, binades = torch.full((ranks, 8), small), math.log2(ranks)
    assert parallel.reduction(gradients, torch.float16, op="ddp").result.count_nonzero() == 0
    assert parallel.reduction(gradients, torch.float16, op="mean").relative_error < 0.05
    for scaled, dtype in ((2**10 * gradients, torch.float16), (gradients, torch.bfloat16)):
        assert parallel.reduction(scaled, dtype, op="ddp").relative_error < 0.05


def not_data_parallel() -> None:
    """Ask PyTorch what DataParallel does in a step, and on two real processes when DDP sends."""
    forward = inspect.getsource(nn.DataParallel.forward)
    assert "self.replicate(" in forward
    assert "self.gather(outputs, self.output_device)" in forward
    assert "threading.Thread(" in inspect.getsource(nn.parallel.parallel_apply)

    def events() -> list[str]:
        """Return what DDP sends in one backward pass, and when the first layer gets its gradient."""
        happened: list[str] = []
        first = nn.Linear(600, 600)
        ddp = DistributedDataParallel(nn.Sequential(first, nn.Linear(600, 600)), bucket_cap_mb=1)

        def send(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch refuses annotations that are text
            happened.append("sent")
            return default_hooks.allreduce_hook(dist.group.WORLD, bucket)

        ddp.register_comm_hook(None, send)
        first.weight.register_hook(lambda gradient: happened.append("first layer"))
        for _ in range(2):  # the first pass has one bucket, and learns the order
            happened.clear()
            ddp(torch.ones(2, 600)).sum().backward()
        return happened

    assert all(rank.index("sent") < rank.index("first layer") for rank in parallel.run(events, 2))


def fsdp_policy() -> None:
    """Run FSDP2 with a policy on eight ranks that are not there, also under autocast; look on the way."""
    policy, ranks = MixedPrecisionPolicy(torch.bfloat16, torch.float32), 8

    def run(
        autocast_dtype: torch.dtype | None = None, each: MixedPrecisionPolicy = policy, synced: bool = True
    ) -> tuple[list[torch.dtype], list[torch.dtype], parallel.Communication]:
        """Return dtypes of a norm's input, of its and a product's output, of the shards; and what is sent."""
        model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64))
        seen: list[torch.dtype] = []
        model[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
        for layer in model:
            layer.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
        shards: list[torch.dtype] = []

        def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
            fully_shard(model, mesh=mesh, mp_policy=each).set_requires_gradient_sync(synced)
            shards.extend(parameter.dtype for parameter in model.parameters())
            return model

        with torch.autocast("cpu", autocast_dtype, enabled=autocast_dtype is not None):
            return seen, shards, parallel.communication(model, torch.randn(4, 64), ranks, sharded)

    seen, shards, sent = run()
    assert set(seen) == {torch.bfloat16}  # the fp32 input is cast, and the norm runs in 16 bits, too
    assert set(shards) == {torch.float32}
    by_collective = {row.collective: row.dtype for row in sent.rows}
    assert by_collective == {"all-gather": torch.bfloat16, "reduce-scatter": torch.float32}
    assert run(torch.float16)[0][-1] == torch.float16  # autocast has the last word
    assert {row.collective for row in run(synced=False)[2].rows} == {"all-gather"}  # gradients stay, whole
    in_place = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
    assert run(torch.bfloat16, in_place)[0][0] == torch.float32  # not cast
    billions = 7
    whole, shard = 4 * billions, 4 * billions / ranks


def reduce_dtype() -> None:
    """Ask the installed FSDP2 what it reduces in when nobody says."""
    found = parallel.default_reduce_dtype()
    assert found.seen[None] == torch.float32
    in_bf16 = found.seen[torch.bfloat16]
    assert in_bf16 == (torch.float32 if torch.__version__ >= "2.15" else torch.bfloat16)
    default = {torch.bfloat16: "bf16", torch.float32: "fp32"}[in_bf16]


def lost_masters() -> None:
    """Upcast parameters in a loop that assigns to its own variable; look at the dtypes and at AdamW."""
    model, rate = nn.Linear(8, 8).bfloat16(), 1e-5
    for parameter in model.parameters():
        parameter = parameter.to(torch.float32)  # type: ignore[assignment]  # a tensor that nobody keeps
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}

    def trained(layer: nn.Linear) -> tuple[torch.dtype, float]:
        """Return the dtype of a moment, and the share of the weights that stay in three steps."""
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=rate)
        before = layer.weight.detach().clone()
        for _ in range(3):
            layer(torch.randn(4, 8).to(before.dtype)).square().mean().backward()
            optimizer.step()
        return optimizer.state[layer.weight]["exp_avg"].dtype, (layer.weight == before).float().mean().item()

    (lost, still), (kept, few) = trained(model), trained(nn.Linear(8, 8))
    assert (lost, kept) == (torch.bfloat16, torch.float32)
    assert still > 0.5 > 0.05 > few


def zero() -> None:
    """Count the bytes per parameter that a rank holds in each stage, in the convention of ZeRO's paper."""
    ranks = 8
    held = {
        stage: parallel.memory_per_rank(1_000_000_000, ranks, stage, "zero").bytes_per_parameter
        for stage in ("ddp", "zero1", "zero2", "zero3", "fsdp2")
    }
    assert held["zero3"] == held["fsdp2"] == held["ddp"] / ranks
    reduced, scattered, gathered = (
        parallel.sent_bytes(name, 2_000_000_000, ranks)
        for name in ("all-reduce", "reduce-scatter", "all-gather")
    )
    assert reduced == scattered + gathered  # stages one and two: gradients scattered, weights gathered
    more = float((scattered + 2 * gathered) / reduced)


def traffic() -> None:
    """Ask DDP's own buckets what a step sends, and count it for a compressed one."""
    model, inputs, ranks = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))), torch.randn(4, 256), 8
    plain = parallel.communication(model, inputs, ranks, "ddp")
    compressed = parallel.communication(model, inputs, ranks, "ddp", reduce_dtype=torch.bfloat16)
    assert {(row.collective, row.dtype) for row in plain.rows} == {("all-reduce", torch.float32)}
    parameters = sum(p.numel() for p in model.parameters())
    assert plain.sent_bytes == 2 * (ranks - 1) / ranks * 4 * parameters  # around twice, all but its own part
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(inputs).sum()
    loss.backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}
    whole, half = plain.sent_bytes / parameters, compressed.sent_bytes / parameters
