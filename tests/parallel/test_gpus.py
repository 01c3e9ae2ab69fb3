"""Ranks that skip together, and FSDP2, on GPUs with NCCL; the same on gloo where there are none."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from amp_lessons import audit, parallel

GPUS = torch.cuda.device_count()
one_gpu = pytest.mark.skipif(GPUS < 1 or not dist.is_nccl_available(), reason="needs a GPU and NCCL")
two_gpus = pytest.mark.skipif(GPUS < 2, reason="needs two CUDA GPUs")


def device_of_rank():
    """Return this rank's device: a GPU of its own, or the CPU under gloo."""
    if dist.get_backend() != "nccl":
        return torch.device("cpu")
    torch.cuda.set_device(dist.get_rank())
    return torch.device("cuda", dist.get_rank())


def skips_and_scales():
    """Overflow on the last rank alone, under DDP with autocast; return what came of it, by the audit."""
    device = device_of_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0)
    with audit.watch(every=1) as seen:
        for step in range(4):
            optimizer.zero_grad()
            last = dist.get_rank() == dist.get_world_size() - 1
            inputs = torch.full((8, 16), 1e30 if step == 2 and last else 1.0, device=device)
            with torch.autocast(device.type, dtype=torch.float16):
                loss = model(inputs).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    weights = [parameter.detach().cpu() for parameter in model.parameters()]
    return [step.happened for step in seen.steps], scaler.get_scale(), weights, seen.report


def reduced_gradient(reduce_dtype):
    """Return the mean over ranks of gradients 1 and, on the others, 2^-10, reduced by FSDP2 in a dtype."""
    device = device_of_rank()
    model = nn.Linear(8, 1, bias=False).to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    inputs = torch.full((1, 8), 2.0**-10 if dist.get_rank() else 1.0, device=device)
    model(inputs).sum().backward()
    return model.weight.grad.full_tensor().cpu()


def together(results):
    happened, scales, weights, reports = zip(*results, strict=True)
    assert happened == ([True, True, False, True],) * len(results)
    assert set(scales) == {128.0}
    for others in weights[1:]:
        assert all(map(torch.equal, others, weights[0]))
    assert len(reports) == 1 or audit.of_ranks(reports).passed


def in_fp32_or_not(reduced):
    """Hold what came of the reduction in fp32 and in bf16 against exact arithmetic, then rounded."""
    exact = (1.0 + 2.0**-10) / 2
    in_fp32, in_bf16 = (set(each.flatten().tolist()) for each in reduced)
    assert in_fp32 == {exact}
    assert in_bf16 == {float(torch.tensor(exact).to(torch.bfloat16))} != in_fp32


def test_ranks_skip_together_on_gloo():
    together(parallel.run(skips_and_scales, 2))


def test_the_reduce_dtype_is_that_of_the_sum_on_gloo():
    both = [parallel.run(reduced_gradient, 2, dtype)[0] for dtype in (torch.float32, torch.bfloat16)]
    summed = (
        parallel.gloo_facts().averages["fully_shard"] == 8.0
    )  # https://github.com/pytorch/pytorch/issues/162338
    in_fp32_or_not([each / 2 for each in both] if summed else both)


def _of_rank(rank, world_size, backend, store, fn, args, results):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
    shared = dist.FileStore(store, world_size)
    dist.init_process_group(backend, store=shared, rank=rank, world_size=world_size)
    torch.save(fn(*args), f"{results}/{rank}.pt")
    dist.destroy_process_group()


def on_gpus(world_size, folder, fn, *args, backend="nccl"):
    """Run a function on ranks with a GPU each: new processes, for one that was forked can have no CUDA."""
    store = folder / f"store-{len(list(folder.iterdir()))}"
    spawned = (world_size, backend, str(store), fn, args, str(folder))
    torch.multiprocessing.spawn(_of_rank, args=spawned, nprocs=world_size)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world_size)]


@pytest.mark.thorough
@pytest.mark.slow
def test_spawned_ranks_are_ranks_as_well(tmp_path):
    """What the tests below need of ``on_gpus``, where there is neither GPU nor NCCL."""
    together(on_gpus(2, tmp_path, skips_and_scales, backend="gloo"))
    (alone,) = on_gpus(1, tmp_path, reduced_gradient, torch.float32, backend="gloo")
    assert set(alone.flatten().tolist()) == {1.0}


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=one_gpu), pytest.param(2, marks=two_gpus)])
def test_ranks_skip_together_on_gpus_with_nccl(ranks, tmp_path):
    together(on_gpus(ranks, tmp_path, skips_and_scales))


@pytest.mark.gpu
@one_gpu
def test_one_gpu_with_nccl_reduces_with_itself_what_it_has(tmp_path):
    for dtype in (torch.float32, torch.bfloat16):
        (reduced,) = on_gpus(1, tmp_path, reduced_gradient, dtype)
        assert set(reduced.flatten().tolist()) == {1.0}


@pytest.mark.gpu
@two_gpus
def test_the_reduce_dtype_is_that_of_the_sum_on_two_gpus(tmp_path):
    in_fp32_or_not([on_gpus(2, tmp_path, reduced_gradient, d)[0] for d in (torch.float32, torch.bfloat16)])
