import torch


def train_overbearing_penalty(model, loader, optimizer, loss_fn, epochs, *, penalty, device_type, dtype):
    """Train on loss plus penalty times its gradient's norm; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        history.append(0.0)
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            gradients = torch.autograd.grad(scaler.scale(loss), tuple(model.parameters()), create_graph=True)
            norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
            scaler.scale(loss + penalty * norm).backward()
            scaler.step(optimizer)
            scaler.update()
            history[-1] += loss.item() / len(loader)
    return history
