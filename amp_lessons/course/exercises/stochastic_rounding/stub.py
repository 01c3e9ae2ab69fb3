def round_stochastically(x, generator):
    """Round an fp32 tensor to bf16, up or down at random, so that the mean of many roundings is x."""
    raise NotImplementedError
