import torch


def step_nan_in_tests(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    """Train on one batch in mixed precision; return its loss."""
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.item()
