import torch


def train(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, max_norm, device_type,
          dtype):
    """Train with one clipped update per accumulation_steps batches; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for i, (inputs, targets) in enumerate(loader):
            with torch.autocast(device_type, dtype=dtype):
                outputs = model(inputs)
                loss = loss_fn(outputs, targets)
            scaler.scale(loss / accumulation_steps).backward()
            total += loss.item()
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
        history.append(total / len(loader))
    return history
