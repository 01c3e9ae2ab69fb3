import torch


def step_nan_in_tests(model, inputs, targets, optimizer, loss_fn, scaler, *, device_type, dtype):
    """Train on one batch in mixed precision; return its loss."""
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    optimizer.zero_grad()
    with torch.autocast(device_type, dtype=dtype):
        loss = loss_fn(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    if scaler.get_scale() < scale:  # the step was skipped
        for name, buffer in model.named_buffers():
            buffer.copy_(kept[name])
    return loss.item()
