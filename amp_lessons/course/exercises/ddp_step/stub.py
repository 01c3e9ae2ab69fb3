def ddp_train(model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, dtype):
    """Train on every rank at once; return the mean loss of each epoch over all ranks' samples.

    torch.distributed is initialised; ``loader`` yields this rank's batches, as many as on every other rank.
    """
    raise NotImplementedError
