def train_with_amp(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    """Train in mixed precision; return the mean loss of each epoch as a list of floats."""
    raise NotImplementedError
