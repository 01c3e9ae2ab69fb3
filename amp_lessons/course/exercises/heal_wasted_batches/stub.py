import torch


def train_wasted_batches(model, data, optimizer, loss_fn, epochs, *, accumulation_steps,
                         device_type, dtype):
    """Train with one update per accumulation_steps batches; return the mean loss of each epoch."""
    scaler, history = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16), []
    for _ in range(epochs):
        history.append(0.0)
        for i, (inputs, targets) in enumerate(data):
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss / accumulation_steps).backward()
            scaler.unscale_(optimizer)
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(data):
                scaler.step(optimizer)
                optimizer.zero_grad()
            scaler.update()
            history[-1] += loss.item() / len(data)
    return history
