def group_quantize(weight, group_size):
    """Return INT4 codes of weight (out, in) as int8, and a bf16 scale for each group."""
    raise NotImplementedError
