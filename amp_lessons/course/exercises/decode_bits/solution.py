def decode_bits(bits, exponent_bits, mantissa_bits):
    """Return the value of an IEEE floating point number with these bits, as a float."""
    mantissa = bits & (2**mantissa_bits - 1)
    exponent = (bits >> mantissa_bits) & (2**exponent_bits - 1)
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 2**exponent_bits - 1:
        return float("nan") if mantissa else sign * float("inf")
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
