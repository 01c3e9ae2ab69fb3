import torch


def train_missed_warm_up(model, data, optimizer, loss_fn, epochs, *, scheduler, average,
                         device_type, dtype):
    """Train with a schedule and averaged weights; return the mean loss of each epoch."""
    scaler, history = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16), []
    for _ in range(epochs):
        history.append(0.0)
        for inputs, targets in data:
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
            history[-1] += loss.item() / len(data)
    return history
