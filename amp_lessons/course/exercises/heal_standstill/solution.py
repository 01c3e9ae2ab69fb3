import torch


def train_standstill(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):
    """Train in mixed precision, clip gradients to max_norm; return each epoch's mean loss."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history
