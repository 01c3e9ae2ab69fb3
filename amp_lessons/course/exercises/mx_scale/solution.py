import math


def mx_scale(block):
    """Return k, an int, of the scale 2**k that a block of numbers shares in MXFP8."""
    amax = block.abs().max().item()
    if not math.isfinite(amax):
        return 128
    fraction, exponent = math.frexp(amax / 448)
    return max(exponent - (fraction == 0.5), -127)
