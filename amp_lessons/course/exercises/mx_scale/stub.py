def mx_scale(block):
    """Return k, an int, of the scale 2**k that a block of numbers shares in MXFP8."""
    raise NotImplementedError
