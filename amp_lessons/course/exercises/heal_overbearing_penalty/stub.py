import torch


def train_overbearing_penalty(model, loader, optimizer, loss_fn, epochs, *, penalty, device_type, dtype):
    """Train on the loss plus penalty times the norm of its gradient; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    parameters = list(model.parameters())
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            gradients = torch.autograd.grad(scaler.scale(loss), parameters, create_graph=True)
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            scaler.scale(loss + penalty * norm).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history
