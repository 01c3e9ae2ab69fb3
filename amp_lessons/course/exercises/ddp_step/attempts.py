"""Wrong and right loops for several processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from amp_lessons.course.exercises.attempt_table import Table

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
wrong(
    "batch_that_is_not_finite_left_out",
    "overflow_stepped_on",
    "left out a batch whose loss was not finite",
    (
        BACKWARD,
        "                    if not torch.isfinite(loss):\n                        continue\n" + BACKWARD,
    ),
)
wrong(
    "gradients_multiplied_by_zero",
    "wrong_update_of_all",
    "all ranks: it is 0 times the right one",
    (BACKWARD, BACKWARD.replace("share", "share * (start == 0)")),
)
wrong(
    "one_mean_of_the_history_wrong",
    "history_not_of_all",
    "0 instead of",
    ("    return history\n", "    return history[:-1] + [0.0]\n"),
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
wrong("mean_of_means", "wrong_update_of_all", "times the right one", (SHARE, "1 / len(window)"))
wrong(
    "divided_by_the_full_window",
    "wrong_update_of_all",
    "times the right one",
    (SHARE, "1 / accumulation_steps"),
)
wrong(
    "own_samples_only",
    "wrong_update_of_all",
    "times the right one",
    ("            dist.all_reduce(samples)\n", ""),
)
wrong(
    "ranks_forgotten",
    "wrong_update_of_all",
    "times the right one",
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
    "loss_not_scaled",
    "was not scaled",
    ("scaler.scale(loss * share)", "(loss * share)"),
    (STEP, "            optimizer.step()\n"),
    (UPDATE, ""),
)
wrong(
    "no_scaler_and_a_sum_over_samples",
    "loss_not_scaled",
    "was not scaled",
    ("scaler.scale(loss * share)", "(loss * len(inputs))"),
    (
        STEP,
        "            for parameter in model.parameters():\n"
        "                parameter.grad *= dist.get_world_size() / samples.item()\n"
        "            optimizer.step()\n",
    ),
    (UPDATE, ""),
)
SCALED_BY_HAND = (
    ("scaler.scale(loss * share)", "(loss * share * (2.0**14 if dtype == torch.float16 else 1.0))"),
    (UPDATE, ""),
)
STEP_BY_HAND = (
    "                for parameter in model.parameters():\n"
    "                    parameter.grad /= 2.0**14 if dtype == torch.float16 else 1.0\n"
    "                optimizer.step()\n"
)
wrong(
    "scaled_by_hand_and_never_asked",
    "overflow_stepped_on",
    "both ranks",
    *SCALED_BY_HAND,
    (STEP, "            if True:\n" + STEP_BY_HAND),
)
wrong(
    "scaled_by_hand_and_asked_of_its_own_batches",
    "skipped_apart",
    "made the step that the other skipped",
    *SCALED_BY_HAND,
    ("            window = batches", "            finite = True\n            window = batches"),
    (
        "                seen +=",
        "                finite = finite and bool(inputs.abs().max() < 1e4)\n                seen +=",
    ),
    (STEP, "            if finite:\n" + STEP_BY_HAND),
)
wrong(
    "rank_ones_weights",
    "not_rank_zeros_weights",
    "rank 0 was given",
    (WRAP, "    for p in model.parameters():\n        dist.broadcast(p.data, src=1)\n" + WRAP),
)
wrong(
    "a_new_scaler_for_each_window",
    "scaler_recreated",
    "new GradScaler",
    (
        "            window = batches",
        "            scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"
        "            window = batches",
    ),
)
wrong(
    "a_new_scaler_for_each_epoch",
    "scaler_recreated",
    "new GradScaler",
    (
        "        seen = torch.zeros(2)",
        "        scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)\n"
        "        seen = torch.zeros(2)",
    ),
)
wrong(
    "averaged_start",
    "not_rank_zeros_weights",
    "rank 0 was given",
    (
        WRAP,
        "    for p in model.parameters():\n"
        "        dist.all_reduce(p.data)\n"
        "        p.data /= dist.get_world_size()\n" + WRAP,
    ),
)
wrong(
    "weights_averaged_too",
    "reduced_every_batch",
    "for 6 steps",
    (
        STEP,
        STEP + "            for p in model.parameters():\n"
        "                dist.all_reduce(p.data)\n"
        "                p.data /= dist.get_world_size()\n",
    ),
)
wrong("never_zeroed", "no_zero_grad", "gradients", ("            optimizer.zero_grad()\n", ""))
wrong(
    "mean_of_the_ranks_histories",
    "history_not_of_all",
    "something else",
    (
        "        dist.all_reduce(seen)\n        history.append((seen[0] / seen[1]).item())",
        "        mean = seen[0] / seen[1]\n        dist.all_reduce(mean)\n"
        "        history.append(mean.item() / dist.get_world_size())",
    ),
)
wrong("bf16_always", "wrong_autocast_dtype", "dtype", ("dtype=dtype):", "dtype=torch.bfloat16):"))
wrong("own_history", "history_not_of_all", "own mean", ("        dist.all_reduce(seen)\n", ""))
wrong("no_history", "wrong_return_type", "None", ("    return history", ""))
wrong("history_of_tensors", "wrong_return_type", "list", ("(seen[0] / seen[1]).item()", "seen[0] / seen[1]"))
wrong("first_epoch_only", "other_batches", "5 batches, in 2 epochs of 5", ("in range(epochs)", "in range(1)"))
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


right(
    "weights_handed_out_by_a_sum",
    (
        WRAP,
        "    for p in model.parameters():\n"
        "        p.data *= dist.get_rank() == 0\n"
        "        dist.all_reduce(p.data)\n" + WRAP,
    ),
)
right("scaler_in_bf16_too", ("enabled=dtype == torch.float16", "enabled=True"))
right(
    "summed_by_a_hook",
    (
        WRAP,
        WRAP
        + "    def summed(state, bucket):\n"
        + "        done = dist.all_reduce(bucket.buffer(), async_op=True).get_future()\n"
        + "        return done.then(lambda future: future.value()[0])\n"
        + "    ddp.register_comm_hook(None, summed)\n",
    ),
    ("len(inputs) * dist.get_world_size()", "len(inputs)"),
)


@TABLE.correct()
def one_backward_for_a_window(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    device, ddp = next(model.parameters()).device.type, DistributedDataParallel(model)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    batches, history = list(loader), []
    for _ in range(epochs):
        total = torch.zeros(2)
        for start in range(0, len(batches), accumulation_steps):
            losses = []
            for x, y in batches[start : start + accumulation_steps]:
                with torch.autocast(device, dtype=dtype):
                    losses.append(loss_fn(ddp(x), y) * len(x))
            sizes = [len(x) for x, _ in batches[start : start + accumulation_steps]]
            both = torch.tensor([sum(loss.item() for loss in losses), float(sum(sizes))])
            dist.all_reduce(both)
            optimizer.zero_grad()
            scaler.scale(sum(losses[1:], losses[0]) * (dist.get_world_size() / both[1].item())).backward()
            scaler.step(optimizer)
            scaler.update()
            total += both
        history.append((total[0] / total[1]).item())
    return history


@TABLE.correct()
def a_scale_by_hand(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    device, ddp = next(model.parameters()).device.type, DistributedDataParallel(model)
    scale = 2.0**14 if dtype == torch.float16 else 1.0
    batches, history = list(loader), []
    for _ in range(epochs):
        total = torch.zeros(2)
        for start in range(0, len(batches), accumulation_steps):
            window = batches[start : start + accumulation_steps]
            counts = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(counts, torch.tensor([float(sum(len(x) for x, _ in window))]))
            share = dist.get_world_size() / sum(counts[1:], counts[0]).item()
            for i, (x, y) in enumerate(window):
                ddp.require_backward_grad_sync = i + 1 == len(window)
                with torch.autocast(device, dtype=dtype):
                    loss = loss_fn(ddp(x), y)
                (loss * (scale * len(x) * share)).backward()
                total += torch.tensor([loss.item() * len(x), len(x)])
            if all(bool(p.grad.isfinite().all()) for p in model.parameters()):
                torch._foreach_div_([p.grad for p in model.parameters()], scale)
                optimizer.step()
            else:
                scale /= 2
            optimizer.zero_grad()
        dist.all_reduce(total)
        history.append((total[0] / total[1]).item())
    return history


@TABLE.correct()
def flags_of_the_scaler_reduced(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    device = next(model.parameters()).device.type
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    batches, history = list(loader), []
    for _ in range(epochs):
        total = torch.zeros(2)
        for start in range(0, len(batches), accumulation_steps):
            window = batches[start : start + accumulation_steps]
            samples = torch.tensor(float(sum(len(x) for x, _ in window)))
            dist.all_reduce(samples)
            optimizer.zero_grad()
            for x, y in window:
                with torch.autocast(device, dtype=dtype):
                    loss = loss_fn(model(x), y)
                scaler.scale(loss * (len(x) / samples.item())).backward()
                total += torch.tensor([loss.item() * len(x), len(x)])
            scaler.unscale_(optimizer)
            if scaler.is_enabled():
                for flag in scaler._found_inf_per_device(optimizer).values():
                    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            scaler.step(optimizer)
            scaler.update()
        dist.all_reduce(total)
        history.append((total[0] / total[1]).item())
    return history


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
