"""Train a model in mixed precision on however many processes there are; whoever starts them says how many.

    torchrun --standalone --nproc-per-node 2 train.py --strategy fsdp2 --dtype bf16

It needs PyTorch alone. Every rank draws the same batch and takes its part of it, so the losses do not depend
on the number of ranks, but for rounding. With ``--checkpoint FOLDER`` it goes on from there, on as many ranks
as there are now, and saves its state at the end.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WIDTH = 64


def main() -> None:
    """Train for so many steps; rank 0 prints a line of JSON."""
    options = arguments()
    device = join(options.device)
    torch.manual_seed(0)  # the same weights on every rank
    layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(3))
    model = distributed(nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(device), options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=options.dtype == "fp16")
    first = load(options.checkpoint, model, optimizer, scaler)
    losses = [
        train_step(model, optimizer, scaler, batch(step, options.batch, device), options)
        for step in range(first, first + options.steps)
    ]
    save(options.checkpoint, model, optimizer, scaler, first + options.steps)
    if dist.get_rank() == 0:
        told = {"ranks": dist.get_world_size(), "backend": dist.get_backend(), "first_step": first}
        print(json.dumps({**told, "losses": losses, "scale": scaler.get_scale()}), flush=True)
    dist.destroy_process_group()


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line, or these words."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--strategy", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bf16")
    there = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cuda", "cpu"), default=there)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=128, help="samples a step, of all ranks together")
    parser.add_argument("--checkpoint", type=Path, default=None, help="a folder that all ranks can write to")
    return parser.parse_args(words)


def join(device_type: str) -> torch.device:
    """Join the others, whom the environment names; return this rank's device."""
    if device_type == "cpu":
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def distributed(model: nn.Module, options: argparse.Namespace) -> nn.Module:
    """Give every rank all of the model, or a shard of it; gradients are reduced in fp32 either way."""
    if options.strategy == "ddp":
        return DistributedDataParallel(model)
    policy = MixedPrecisionPolicy(param_dtype=DTYPES[options.dtype], reduce_dtype=torch.float32)
    mesh = init_device_mesh(options.device, (dist.get_world_size(),))
    for module in (*model.children(), model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


def batch(step: int, samples: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw a batch and return this rank's part; half the mean square of the inputs is to be learned."""
    draw = torch.Generator().manual_seed(step)
    inputs = torch.randn(samples, WIDTH, generator=draw)
    targets = inputs.square().mean(1, keepdim=True) / 2
    mine = own_part(samples, dist.get_rank(), dist.get_world_size())
    return inputs[mine].to(device), targets[mine].to(device)


def own_part(samples: int, rank: int, ranks: int) -> slice:
    """Share out a batch, as many samples to each rank: else the mean of their means is another one."""
    if samples % ranks:
        raise SystemExit(f"--batch is divisible by the number of ranks, {ranks}, not {samples}")
    return slice(rank, samples, ranks)


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    part: tuple[Tensor, Tensor],
    options: argparse.Namespace,
) -> float:
    """Make a step; return the mean loss of all ranks."""
    inputs, targets = part
    optimizer.zero_grad()
    with autocast(inputs.device, options):
        outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    total = loss.detach() / dist.get_world_size()
    dist.all_reduce(total)
    return total.item()


def autocast(device: torch.device, options: argparse.Namespace) -> AbstractContextManager[Any]:
    """Cast operation by operation; FSDP2 has cast the weights and the inputs already."""
    enabled = options.strategy == "ddp" and options.dtype != "fp32"
    return torch.autocast(device.type, DTYPES[options.dtype] if enabled else None, enabled=enabled)


def state_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, step: int
) -> dict[str, Any]:
    """Collect everything that training goes on from, with names that do not depend on the strategy."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "scaler": scaler.state_dict(), "step": step}


def save(folder: Path | None, *parts: Any) -> None:
    """Write every rank's shards, beside the checkpoints that are there."""
    if folder is not None:
        state = state_of(*parts)
        dcp.save(state, checkpoint_id=folder / f"step-{state['step']:08}")


def load(
    folder: Path | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
) -> int:
    """Put the latest checkpoint back, if there is one; return the number of steps that are done."""
    found = sorted(folder.glob("step-*/.metadata")) if folder is not None else []  # written last
    if not found:
        return 0
    state = state_of(model, optimizer, scaler, 0)
    dcp.load(state, checkpoint_id=found[-1].parent)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    return state["step"]


if __name__ == "__main__":
    main()
