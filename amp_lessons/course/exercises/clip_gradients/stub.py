def train_with_clipping(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):
    """Train in mixed precision, clip gradients to max_norm; return each epoch's mean loss."""
    raise NotImplementedError
