def train_with_clipping(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):
    """Train in mixed precision with gradients clipped to max_norm; return the mean loss of each epoch."""
    raise NotImplementedError
