def time_step(fn, *, warmup, repeats, synchronize):
    """Return, as a float, the median time of one call of fn() in milliseconds."""
    raise NotImplementedError
