def train(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, max_norm, device_type,
          dtype):
    """Train with one clipped update per accumulation_steps batches; return the mean loss of each epoch."""
    raise NotImplementedError
