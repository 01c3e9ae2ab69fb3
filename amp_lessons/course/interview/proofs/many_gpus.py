"""Proofs of the answers about training on many GPUs: by simulation, by bookkeeping, and on two processes."""

from __future__ import annotations

import importlib
import inspect
import math
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel, _functions, replicate

from amp_lessons import parallel


def _scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu")


def bf16_reduce() -> dict[str, object]:
    """Add gradients of many ranks around a ring in bf16 and in fp32."""
    alike = torch.ones(1024, 1)
    assert (
        parallel.reduce(alike, torch.bfloat16, "ring", op="sum") == 256
    )  # where one more rank is half a step
    assert torch.tensor(256.0).bfloat16() + 1 == 256
    assert parallel.reduce(alike, torch.float32, "ring", op="sum") == 1024
    spread = 0.1
    gradients = parallel.rank_gradients(1024, noise=spread)
    few, many = (parallel.reduction(gradients[:n], torch.bfloat16) for n in (8, 1024))
    wide = parallel.reduction(gradients, torch.float32)
    assert wide.relative_error < 1e-4
    assert few.relative_error < 0.01
    assert many.size < 0.5
    mean = gradients.mean(0)
    shares = (many.result / mean)[mean.abs() > 0.2]  # where the ranks agree: the noise is 0.1
    assert (shares < 0.95).all()  # towards less
    assert shares.max() > 2 * shares.min()  # and not the same for all parameters
    all_reduced = [parallel.sent_bytes("all-reduce", 1000 * size, 1024) for size in (2, 4)]
    assert all_reduced[1] == 2 * all_reduced[0]
    # Sent in bf16, added up in fp32 by the rank that keeps the sum, and rounded once
    sent = gradients.bfloat16().float()
    once = [
        ((sent[:n].mean(0).bfloat16() - gradients[:n].mean(0)).norm() / gradients[:n].mean(0).norm()).item()
        for n in (8, 1024)
    ]
    assert max(once) < min(2**-8, few.relative_error)  # of one rounding, however many ranks
    return {
        "spread": f"{spread:.0%}",
        "few": 8,
        "error": f"{few.relative_error:.1%}",
        "many": 1024,
        "size": f"{many.size:.0%}",
    }


def ring_or_tree() -> dict[str, object]:
    """Compare a ring and a tree by how often a partial sum is rounded, and by what is wrong at the end."""
    gradients = parallel.rank_gradients(1024, noise=0.1)
    ring, tree = (parallel.growth(gradients, torch.bfloat16, way, ranks=(1024,)) for way in ("ring", "tree"))
    assert ring.hops == (1023,)
    assert tree.hops == (10,)
    assert tree.errors[0] < 0.01 < ring.errors[0]
    in_fp32 = [parallel.growth(gradients, torch.float32, way, ranks=(1024,)) for way in ("ring", "tree")]
    assert max(each.errors[0] for each in in_fp32) < 1e-4  # harmless, both
    nccl_hops = (8 - 1) + int(math.log2(1024 / 8))  # a chain in the machine, a tree over machines
    assert tree.hops[0] < nccl_hops < ring.hops[0]
    # A switch that adds eight in fp32 and rounds once, then a tree over machines in bf16
    domains = gradients.view(128, 8, -1).mean(1).bfloat16()
    in_the_switch = parallel.growth(domains.float(), torch.bfloat16, "tree", ranks=(128,))
    nvls_hops = 1 + in_the_switch.hops[0]
    assert nvls_hops < nccl_hops
    assert in_the_switch.errors[0] < tree.errors[0] + 0.005
    return {
        "ranks": 1024,
        "ring_hops": ring.hops[0],
        "tree_hops": tree.hops[0],
        "node": "8 GPUs",
        "nccl_hops": nccl_hops,
    }


def ddp_skips() -> dict[str, object]:
    """Let one of two real processes overflow, under DDP and a scaler of its own on each rank."""

    def train() -> tuple[float, float]:
        layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(layer.weight)
        model = DistributedDataParallel(layer)
        optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=1.0), _scaler()
        loss = model(torch.ones(1, 1)).sum() * (math.inf if dist.get_rank() == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return layer.weight.item(), scaler.get_scale()

    first, second = parallel.run(train, 2)
    start = _scaler().get_scale()
    assert first == second == (1.0, start / 2)  # both skipped, both backed off

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
    assert ShardedGradScaler is not torch.amp.GradScaler  # FSDP1's

    def scale_with_two_meshes() -> float:
        """Let rank 1 overflow in a parameter that both ranks share; one of each rank's own comes first."""
        meshes = init_device_mesh("cpu", (2, 1), mesh_dim_names=("both", "own"))
        parameters, scaler = [], _scaler()
        for name in ("own", "both"):
            overflows = name == "both" and dist.get_rank() == 1
            local = (torch.ones(2), torch.full((2,), math.inf if overflows else 1.0))
            weight, gradient = (DTensor.from_local(each, meshes[name], [Shard(0)]) for each in local)
            parameters.append(nn.Parameter(weight))
            parameters[-1].grad = gradient
        scaler.scale(torch.ones(()))
        scaler.step(torch.optim.SGD(parameters, lr=1.0))
        scaler.update()
        return scaler.get_scale()

    assert parallel.run(scale_with_two_meshes, 2) == [start, start / 2]  # reduced over one of them only

    def without_a_scaler(bad: float) -> tuple[float, float, float]:
        """Let a gradient of rank 1 have one bad number; return norm, shares of NaN gradients and weights."""
        layer = nn.Linear(8, 8, bias=False)
        model, optimizer = DistributedDataParallel(layer), torch.optim.AdamW(layer.parameters())
        factors = torch.ones(8, 8)
        factors[0, 0] = bad if dist.get_rank() == 1 else 1.0
        layer.weight.register_hook(lambda gradient: gradient * factors)
        model(torch.ones(1, 8)).sum().backward()
        norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        assert layer.weight.grad is not None
        spoilt = layer.weight.grad.isnan().float().mean().item()
        others = layer.weight.grad.count_nonzero().item()
        assert (others == 1) == math.isinf(bad)  # the others became zero
        optimizer.step()
        return norm.isfinite().item(), spoilt, layer.weight.isnan().float().mean().item()

    assert parallel.run(without_a_scaler, 2, math.nan) == [(False, 1.0, 1.0)] * 2
    assert parallel.run(without_a_scaler, 2, math.inf) == [(False, 1 / 64, 1 / 64)] * 2
    bad = nn.Parameter(torch.ones(2))
    bad.grad = torch.tensor([1.0, math.nan])
    raised = ""
    try:
        nn.utils.clip_grad_norm_([bad], 1.0, error_if_nonfinite=True)
    except RuntimeError as error:
        raised = str(error)
    assert "non-finite" in raised
    return {}


def no_sync() -> dict[str, object]:
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
    (weight, scale), (other_weight, other_scale) = first[0], second[0]
    assert weight != other_weight
    assert scale == 2 * other_scale
    assert first[1][0] != second[1][0]  # the next all-reduce repairs nothing, and nothing is raised
    (right, _), (also_right, _) = parallel.run(train, 2, True)
    assert right == also_right == (1.0, scale / 2)  # the inf of the earlier micro-batch is in the sum
    return {}


def mean_of_means() -> dict[str, object]:
    """Average the gradients of two ranks with 90 and 10 tokens, as DDP does and by token."""
    tokens, gradients = (90, 10), (1.0, 5.0)
    dealt_otherwise = (1.0 + (40 * 1.0 + 10 * 5.0) / 50) / 2  # the same tokens, fifty to a rank
    of_means = parallel.reduction(torch.tensor(gradients)[:, None], torch.float32, op="ddp").result.item()
    of_tokens = sum(n * g for n, g in zip(tokens, gradients, strict=True)) / sum(tokens)
    # what mends it: each rank's mean times its share of the tokens, times the ranks that DDP divides by
    weighted = sum(g * n / sum(tokens) * 2 for n, g in zip(tokens, gradients, strict=True)) / 2
    assert math.isclose(weighted, of_tokens)
    assert of_means > 2 * of_tokens
    assert math.isclose(dealt_otherwise, of_tokens)  # so it depends on how they were dealt out
    return {
        "many": 90,
        "few": 10,
        "at_many": 1,
        "at_few": 5,
        "means": f"{of_means:g}",
        "tokens": f"{of_tokens:g}",
    }


def compress_hook() -> dict[str, object]:
    """Send small gradients of 64 ranks in fp16: divided before the sum, and after it."""
    gradients = torch.full((64, 8), 1e-6)
    before = parallel.reduction(gradients, torch.float16, op="ddp")  # times 1/n, then summed
    after = parallel.reduction(gradients, torch.float16, op="mean")
    assert before.result.count_nonzero() == 0
    assert after.relative_error < 0.05
    large = torch.full((64, 8), 2000.0)
    assert parallel.reduction(large, torch.float16, op="mean").result.isinf().all()
    assert parallel.reduction(large, torch.float16, op="ddp").result.isfinite().all()
    binades = math.log2(len(gradients))
    scaled = parallel.reduction(2**10 * gradients, torch.float16, op="ddp")
    assert scaled.relative_error < 0.05  # the loss scale helps
    hook = inspect.getsource(default_hooks._compress_hook)
    assert -1 < hook.index(".div_(") < hook.index("all_reduce(")
    for values in (gradients, large):  # bf16 has the range
        assert 0 < parallel.reduction(values, torch.bfloat16, op="ddp").relative_error < 0.05
    ordinary = torch.randn(64, 1000)
    half, bf16 = (
        parallel.reduction(ordinary, dtype, op="ddp").relative_error
        for dtype in (torch.float16, torch.bfloat16)
    )
    assert bf16 > 4 * half  # and loses precision in the sum
    return {
        "ranks": 64,
        "small": "1e-6",
        "binades": f"{binades:.0f}",
    }


def not_data_parallel() -> dict[str, object]:
    """Ask PyTorch what DataParallel does in a step, and on two real processes when DDP sends."""
    forward = inspect.getsource(nn.DataParallel.forward)
    assert "self.replicate(" in forward
    assert "self.parallel_apply(" in forward
    assert "self.gather(outputs, self.output_device)" in forward
    in_threads = inspect.getsource(nn.parallel.parallel_apply)
    assert "threading.Thread(" in in_threads
    # all weights go out in one node of the graph, whose backward adds up all gradients: it comes after theirs
    copying = importlib.import_module(replicate.__module__)
    assert "Broadcast.apply(devices, *tensors)" in inspect.getsource(copying)
    assert "ReduceAddCoalesced.apply(" in inspect.getsource(_functions.Broadcast.backward)

    handed_on = in_threads[in_threads.index("autocast(") :].split(")")[0]
    assert "enabled=" in handed_on
    assert "dtype" not in handed_on
    here = torch.get_autocast_dtype("cuda")
    torch.set_autocast_dtype("cuda", torch.bfloat16)  # as `with torch.autocast("cuda", torch.bfloat16)` does
    with ThreadPoolExecutor(1) as thread:
        there = thread.submit(torch.get_autocast_dtype, "cuda").result()
    torch.set_autocast_dtype("cuda", here)
    assert there == torch.float16

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
    return {}


def fsdp_policy() -> dict[str, object]:
    """Run FSDP2 with a policy on eight ranks that are not there, also under autocast; look on the way."""
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    shards: list[nn.Parameter] = []

    def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        fully_shard(model, mesh=mesh, mp_policy=policy)
        shards.extend(model.parameters())
        return model

    def run(autocast_dtype: torch.dtype | None = None) -> tuple[list[torch.dtype], parallel.Communication]:
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))
        seen: list[torch.dtype] = []
        model[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].dtype))
        for each in model:
            each.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
        with torch.autocast("cpu", autocast_dtype, enabled=autocast_dtype is not None):
            return seen, parallel.communication(model, torch.randn(4, 64), 8, sharded)

    (inputs, product, norm), sent = run()
    assert {inputs, product, norm} == {torch.bfloat16}
    by_collective = {row.collective: row.dtype for row in sent.rows}
    assert by_collective == {"all-gather": torch.bfloat16, "reduce-scatter": torch.float32}
    assert {shard.dtype for shard in shards} == {torch.float32}
    (inputs, product, _), _ = run(torch.float16)
    assert (inputs, product) == (
        torch.bfloat16,
        torch.float16,
    )  # the policy casts, autocast has the last word
    # Clipping eight shards of one gradient, by the norm of all or each by its own
    gradient = torch.randn(8, 64) * torch.logspace(-1, 1, 8)[:, None]
    squares = gradient.square().sum(1)  # what the ranks add up
    assert torch.allclose(squares.sum().sqrt(), gradient.norm())
    apart = gradient / squares.sqrt()[:, None].clamp(min=1)
    turned = math.degrees(math.acos((apart * gradient).sum() / (apart.norm() * gradient.norm())))
    assert turned > 10
    assert math.isclose(((gradient / gradient.norm()) * gradient).sum() / gradient.norm(), 1, rel_tol=1e-5)

    def not_reduced(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
        fully_shard(model, mesh=mesh, mp_policy=policy).set_requires_gradient_sync(False)
        return model

    sent = parallel.communication(nn.Linear(64, 64), torch.randn(4, 64), 8, not_reduced)
    assert {row.collective for row in sent.rows} == {"all-gather"}  # gradients stay, whole
    # A table handed to a wrapped block: cast by default, unless it is of integers
    arrived: list[torch.dtype] = []

    class Block(nn.Linear):
        def forward(self, x: torch.Tensor, cosines: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            arrived.extend([cosines.dtype, positions.dtype])
            return super().forward(x.to(self.weight.dtype))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x, torch.ones(4, 64), torch.arange(4))

    for each in (policy, MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)):

        def block_sharded(model: nn.Module, mesh: DeviceMesh, each: MixedPrecisionPolicy = each) -> nn.Module:
            fully_shard(model.block, mesh=mesh, mp_policy=each)  # type: ignore[arg-type]
            fully_shard(model, mesh=mesh, mp_policy=each)
            return model

        arrived.clear()
        parallel.communication(Whole(), torch.randn(4, 64), 8, block_sharded)
        cast = torch.bfloat16 if each is policy else torch.float32
        assert arrived[:2] == [cast, torch.int64]
    # A residual stream: in which dtype it is, and what becomes there of many small additions
    stream: list[torch.dtype] = []

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(4, 8)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(64))
            nn.init.ones_(self.embedding.weight)
            for block in self.blocks:
                nn.init.zeros_(block.weight)  # type: ignore[arg-type]
                nn.init.constant_(block.bias, 2**-9)  # type: ignore[arg-type]

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            x: torch.Tensor = self.embedding(tokens)
            for block in self.blocks:
                x = x + block(x)
                stream.append(x.dtype)
            return x

    tokens = torch.arange(4)
    with torch.autocast("cpu", torch.bfloat16):
        promoted = Deep()(tokens)
    assert set(stream) == {torch.float32}
    assert (promoted == 1 + 64 * 2**-9).all()
    stream.clear()
    assert (Deep().bfloat16()(tokens) == 1).all()  # not one of them is left
    parallel.communication(Deep(), tokens, 8, sharded)
    assert set(stream) == {torch.bfloat16}
    param = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param").FSDPParam
    assert ".to(self.reduce_dtype)" in inspect.getsource(param.to_accumulated_grad_if_needed)
    billions = 7
    return {
        "promoted": "fp32",
        "gathered": "bf16",
        "reduced": "fp32",
        "ranks": 8,
        "billions": billions,
        "whole": 4 * billions,
        "shard": f"{4 * billions / 8:g}",
    }


def reduce_dtype() -> dict[str, object]:
    """Ask the installed FSDP2 what it reduces in when nobody says."""
    found = parallel.default_reduce_dtype()
    assert found.seen[None] == torch.float32
    in_bf16, changed = found.seen[torch.bfloat16], "2.15"
    assert in_bf16 == (torch.float32 if torch.__version__ >= changed else torch.bfloat16)
    fsdp1 = " ".join((MixedPrecision.__doc__ or "").split())
    assert "takes on the ``param_dtype`` value" in fsdp1  # where there is no reduce_dtype
    three_bytes = [parallel.sent_bytes("reduce-scatter", 1000 * size, 3) for size in (2, 4)]
    assert three_bytes[1] == 2 * three_bytes[0]
    three = torch.tensor([[256.0], [1.0], [-256.0]])
    total = parallel.reduce(three, torch.bfloat16, "tree", op="sum").item()
    assert parallel.reduce(three, torch.float32, "tree", op="sum") == 1 != total
    # Two layouts: rounding shrinks in wider formats, and what divides by one rank less does not
    gradients = parallel.rank_gradients(64)
    exact = gradients.double().mean(0)
    rounding, bug = (
        [
            (parallel.reduction(gradients, dtype).result.double() * times - exact).norm() / exact.norm()
            for dtype in (torch.bfloat16, torch.float32)
        ]
        for times in (1, 64 / 63)
    )
    assert rounding[1] < 1e-3 * rounding[0]
    assert bug[1] > 0.01
    return {
        "version": found.torch_version,
        "changed": changed,
        "default": {torch.bfloat16: "bf16", torch.float32: "fp32"}[in_bf16],
    }


def lost_masters() -> dict[str, object]:
    """Upcast parameters in a loop that assigns to its own variable; look at FSDP2's shards and at AdamW."""
    model = nn.Linear(8, 8).bfloat16()
    for parameter in model.parameters():
        parameter = parameter.to(torch.float32)  # type: ignore[assignment]  # a tensor that nobody keeps
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    right = nn.Linear(8, 8).bfloat16().float()
    assert {p.dtype for p in right.parameters()} == {torch.float32}

    def shards(of: nn.Module) -> set[torch.dtype]:
        found: list[nn.Parameter] = []

        def sharded(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
            fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
            found.extend(model.parameters())
            return model

        parallel.communication(of, torch.randn(4, 8), 8, sharded)
        return {each.dtype for each in found}

    assert (shards(model), shards(right)) == ({torch.bfloat16}, {torch.float32})  # FSDP makes no masters

    def trained(layer: nn.Linear) -> tuple[torch.dtype, float, int]:
        """Return the dtype of a moment, the share of the weights that stay, and the bytes of all state."""
        torch.manual_seed(0)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-5)
        before = layer.weight.detach().clone()
        for _ in range(3):
            layer(torch.randn(4, 8).to(before.dtype)).square().mean().backward()
            optimizer.step()
        moments = [optimizer.state[layer.weight][name] for name in ("exp_avg", "exp_avg_sq")]
        stays = (layer.weight == before).float().mean().item()
        return moments[0].dtype, stays, before.nbytes + sum(each.nbytes for each in moments)

    model, right = nn.Linear(8, 8).bfloat16(), nn.Linear(8, 8)
    (lost, still, small), (kept, few, large) = trained(model), trained(right)
    assert (lost, kept) == (torch.bfloat16, torch.float32)
    assert still > 0.5 > 0.05 > few
    assert small == large / 2  # memory improves
    return {
        "rate": "1e-5",
    }


def zero() -> dict[str, object]:
    """Count the bytes per parameter that a rank holds in each stage, in the convention of ZeRO's paper."""

    def held(stage: str, ranks: int = 8) -> float:
        return parallel.memory_per_rank(1_000_000_000, ranks, stage, "zero").bytes_per_parameter

    weights, gradients, state = 2, 2, 4 + 4 + 4  # masters, and two moments
    assert held("ddp") == weights + gradients + state
    assert held("zero1") == weights + gradients + state / 8
    assert held("zero2") == weights + (gradients + state) / 8
    assert held("zero3") == held("fsdp2") == (weights + gradients + state) / 8
    assert held("zero1", 1024) - (weights + gradients) < 0.02

    reduced, scattered, gathered = (
        parallel.sent_bytes(name, 2_000_000_000, 8) for name in ("all-reduce", "reduce-scatter", "all-gather")
    )
    assert reduced == scattered + gathered  # stages one and two: gradients scattered, weights gathered
    more = (scattered + 2 * gathered) / reduced
    assert math.isclose(more, 1.5)
    return {
        "ranks": 8,
        **{stage: f"{held(stage):g}" for stage in ("ddp", "zero1", "zero2", "zero3")},
        "more": f"{float(more):g}",
    }


def traffic() -> dict[str, object]:
    """Ask DDP's own buckets what a step sends, and count it for a compressed one."""
    model, inputs = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))), torch.randn(4, 256)
    plain = parallel.communication(model, inputs, 8, "ddp")
    compressed = parallel.communication(model, inputs, 8, "ddp", reduce_dtype=torch.bfloat16)
    assert {row.dtype for row in plain.rows} == {torch.float32}
    assert {row.collective for row in plain.rows} == {"all-reduce"}
    assert abs(compressed.sent_bytes / plain.sent_bytes - 0.5) < 1e-3
    parameters = sum(p.numel() for p in model.parameters())
    assert plain.sent_bytes == 2 * 7 / 8 * 4 * parameters  # around twice, all but its own part
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(inputs).sum()
    loss.backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}
    return {
        "ranks": 8,
        "dtype": "fp32",
        "bytes": f"{plain.sent_bytes / parameters:g}",
        "half": f"{compressed.sent_bytes / parameters:g}",
    }
