import torch


def train_frozen_weights(model, loader, loss_fn, epochs, lr):
    """Train a model in bf16 by plain SGD; return the mean loss of each epoch."""
    model.to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            outputs = model(inputs.to(torch.bfloat16))
            loss = loss_fn(outputs.float(), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        history.append(total / len(loader))
    return history
