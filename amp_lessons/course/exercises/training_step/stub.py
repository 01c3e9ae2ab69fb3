def training_step(weights, loss_fn, batch, lr, scale):
    """Make one step in fp16 on weights in fp32, in place; return the loss and the next scale, two floats."""
    raise NotImplementedError
