def train_with_accumulation(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    """Train with one update per accumulation_steps batches; return the mean loss of each epoch.

    The last window of an epoch may have fewer batches; it is applied as well.
    """
    raise NotImplementedError
