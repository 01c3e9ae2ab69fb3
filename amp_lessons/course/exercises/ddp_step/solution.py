import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def ddp_train(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    """Train on every rank at once; return the mean loss of each epoch over all ranks' samples."""
    device_type = next(model.parameters()).device.type
    ddp = DistributedDataParallel(model)
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    batches = list(loader)
    history = []
    for _ in range(epochs):
        seen = torch.zeros(2)  # the sum of the losses, the number of samples
        for start in range(0, len(batches), accumulation_steps):
            window = batches[start : start + accumulation_steps]
            samples = torch.tensor(float(sum(len(inputs) for inputs, _ in window)))
            dist.all_reduce(samples)
            for i, (inputs, targets) in enumerate(window):
                last = i + 1 == len(window)
                with contextlib.nullcontext() if last else ddp.no_sync():
                    with torch.autocast(device_type, dtype=dtype):
                        loss = loss_fn(ddp(inputs), targets)
                    # DDP divides by the ranks
                    share = len(inputs) * dist.get_world_size() / samples.item()
                    scaler.scale(loss * share).backward()
                seen += torch.tensor([loss.item() * len(inputs), len(inputs)])
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        dist.all_reduce(seen)
        history.append((seen[0] / seen[1]).item())
    return history
