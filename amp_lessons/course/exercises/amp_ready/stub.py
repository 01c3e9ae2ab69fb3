def amp_ready(model, batch):
    """Return the names of model's modules that need an island of fp32 under fp16 autocast."""
    raise NotImplementedError
