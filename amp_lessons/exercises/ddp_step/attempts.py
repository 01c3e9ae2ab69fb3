"""Wrong and right loops for several processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from amp_lessons.exercises.attempts import Table

TABLE = Table("ddp_step")
wrong = TABLE.mutant
right = TABLE.variant

NO_SYNC = "with contextlib.nullcontext() if last else ddp.no_sync():"
SHARE = "len(inputs) * dist.get_world_size() / samples.item()"
BACKWARD = "                    scaler.scale(loss * share).backward()\n"
STEP = "            scaler.step(optimizer)\n"
UPDATE = "            scaler.update()\n"
WRAP = "    ddp = DistributedDataParallel(model)\n"
FORWARD = "ddp(inputs)"
REDUCE_BY_HAND = (
    "            for parameter in model.parameters():\n"
    "                dist.all_reduce(parameter.grad)\n"
    "                parameter.grad /= dist.get_world_size()\n"
)
NOTHING_FROM_DDP = (NO_SYNC, "with ddp.no_sync():")

wrong(
    "never_wrapped",
    "ranks_start_apart",
    "different weights",
    (WRAP, "    ddp = model\n"),
    (NO_SYNC, "if True:"),
)
wrong("calls_the_model_itself", "weights_apart", "after window 1", (FORWARD, "model(inputs)"))
wrong("never_sends", "weights_apart", "no error said so", NOTHING_FROM_DDP)
wrong("sends_every_batch", "reduced_every_batch", "for 6 steps", (NO_SYNC, "if True:"))
wrong(
    "forward_outside_of_no_sync",
    "reduced_every_batch",
    "sent",
    (NO_SYNC, "if True:"),
    (
        BACKWARD,
        "                    with contextlib.nullcontext() if last else ddp.no_sync():\n    " + BACKWARD,
    ),
)
wrong(
    "last_window_never_sent",
    "weights_apart",
    "after window 3",
    ("last = i + 1 == len(window)", "last = i + 1 == accumulation_steps"),
)
wrong("mean_of_means", "mean_of_means", "small batch", (SHARE, "1 / len(window)"))
wrong("divided_by_the_full_window", "mean_of_means", "window 1", (SHARE, "1 / accumulation_steps"))
wrong("own_samples_only", "wrong_update_of_all", "window 1", ("            dist.all_reduce(samples)\n", ""))
wrong(
    "ranks_forgotten",
    "wrong_update_of_all",
    "0.5 times",
    ("len(inputs) * dist.get_world_size()", "len(inputs)"),
)
wrong(
    "looks_before_it_reduces",
    "skipped_apart",
    "made the step that the other skipped",
    NOTHING_FROM_DDP,
    (STEP, "            scaler.unscale_(optimizer)\n" + REDUCE_BY_HAND + STEP),
)
wrong(
    "inf_removed",
    "overflow_stepped_on",
    "both ranks",
    NOTHING_FROM_DDP,
    (STEP, REDUCE_BY_HAND.replace(".grad)", ".grad.nan_to_num_(0.0, 0.0, 0.0))") + STEP),
)
wrong(
    "compressed",
    "reduced_in_half",
    "fp16",
    (
        WRAP,
        WRAP
        + "    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
        + "    ddp.register_comm_hook(None, fp16_compress_hook)\n",
    ),
)
wrong("no_update", "no_update", "ended without", (UPDATE, ""))
wrong(
    "no_autocast",
    "no_autocast",
    "outside autocast",
    ("with torch.autocast(device_type, dtype=dtype):", "if True:"),
)
wrong(
    "no_scaler",
    "wrong_update_of_all",
    "window 1",
    ("scaler.scale(loss * share)", "(loss * share)"),
    (STEP, "            optimizer.step()\n"),
    (UPDATE, ""),
)
wrong("bf16_always", "wrong_autocast_dtype", "dtype", ("dtype=dtype):", "dtype=torch.bfloat16):"))
wrong("own_history", "history_not_of_all", "own mean", ("        dist.all_reduce(seen)\n", ""))
wrong("no_history", "wrong_return_type", "None", ("    return history", ""))
wrong("history_of_tensors", "wrong_return_type", "list", ("(seen[0] / seen[1]).item()", "seen[0] / seen[1]"))
wrong("first_epoch_only", "other_batches", "losses in 2 epochs", ("in range(epochs)", "in range(1)"))
wrong(
    "ranks_with_scales_of_their_own",
    "scales_apart",
    "window 1",
    ("GradScaler(device_type, ", "GradScaler(device_type, init_scale=2.0**(15 + dist.get_rank()), "),
)
wrong(
    "one_rank_raises",
    "raised",
    "ZeroDivisionError",
    ("    history = []\n", "    history = [] if dist.get_rank() else 1 // 0\n"),
)
wrong(
    "waits_for_ever",
    "rank_time_limit",
    "waiting for the other",
    (
        "    history = []\n",
        "    history = []\n    if dist.get_rank():\n        dist.barrier()\n        dist.barrier()\n",
    ),
)


right("the_solution")
right(
    "gradients_set_to_zero_before",
    ("            optimizer.zero_grad()\n", ""),
    ("            window = batches", "            optimizer.zero_grad()\n            window = batches"),
)
right("explicit_unscale", (STEP, "            scaler.unscale_(optimizer)\n" + STEP))
right(
    "buckets_are_views",
    ("DistributedDataParallel(model)", "DistributedDataParallel(model, gradient_as_bucket_view=True)"),
)


@TABLE.correct()
def flag_instead_of_a_context(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    device = next(model.parameters()).device.type
    ddp, ranks = DistributedDataParallel(model), dist.get_world_size()
    scaler = torch.amp.GradScaler(device, enabled=dtype is torch.float16)
    counts = torch.tensor([float(len(x)) for x, _ in loader])
    dist.all_reduce(counts)  # of all windows at once: every epoch has the same batches
    history = []
    for _ in range(epochs):
        total = torch.zeros((), dtype=torch.float64)
        for i, (x, y) in enumerate(loader):
            start = i - i % accumulation_steps
            ddp.require_backward_grad_sync = (i + 1) % accumulation_steps == 0 or i + 1 == len(loader)
            with torch.autocast(device, dtype=dtype):
                loss = loss_fn(ddp(x), y)
            weight = len(x) * ranks / float(counts[start : start + accumulation_steps].sum())
            scaler.scale(loss).mul(weight).backward()
            total += loss.item() * len(x)
            if ddp.require_backward_grad_sync:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
        dist.all_reduce(total)
        history.append(total.item() / float(counts.sum()))
    return history


@TABLE.correct()
def reduced_by_hand_in_one_tensor(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    device = next(model.parameters()).device.type
    parameters = list(model.parameters())
    for parameter in parameters:
        dist.broadcast(parameter.detach(), src=0)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        batches, total, count = list(loader), 0.0, 0.0
        while batches:
            window, batches = batches[:accumulation_steps], batches[accumulation_steps:]
            optimizer.zero_grad()
            for x, y in window:
                with torch.autocast(device, dtype=dtype):
                    loss = loss_fn(model(x), y)
                scaler.scale(loss * len(x)).backward()
                total, count = total + loss.item() * len(x), count + len(x)
            own = torch.tensor([float(sum(len(x) for x, _ in window))])
            flat = torch.cat([*(p.grad.flatten() for p in parameters), own])
            dist.all_reduce(flat)
            mean = (flat[:-1] / flat[-1]).split([p.numel() for p in parameters])
            for p, g in zip(parameters, mean, strict=True):
                p.grad = g.view_as(p).clone()
            scaler.step(optimizer)
            scaler.update()
        both = torch.tensor([total, count])
        dist.all_reduce(both)
        history.append(float(both[0] / both[1]))
    return history
