def mx_scale(block):
    """Return the exponent k of the scale 2**k that a block of numbers shares in MXFP8, as an int."""
    raise NotImplementedError
