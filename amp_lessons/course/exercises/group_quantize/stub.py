def group_quantize(weight, group_size):
    """Return (codes, scales): INT4 codes of weight (out, in) as int8, and a scale in bf16 for each group."""
    raise NotImplementedError
