def amp_ready(model, batch):
    """Return the names of the modules of model that need an island of fp32 under autocast in fp16."""
    raise NotImplementedError
