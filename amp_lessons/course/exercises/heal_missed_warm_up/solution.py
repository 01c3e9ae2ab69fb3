import torch


def train_missed_warm_up(
    model, loader, optimizer, loss_fn, epochs, *, scheduler, average, device_type, dtype
):
    """Train in mixed precision, with a schedule and averaged weights; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss).backward()
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() >= scale:
                scheduler.step()
                average.update_parameters(model)
            total += loss.item()
        history.append(total / len(loader))
    return history
