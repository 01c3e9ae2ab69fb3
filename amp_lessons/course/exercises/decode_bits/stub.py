def decode_bits(bits, exponent_bits, mantissa_bits):
    """Return the value of an IEEE floating point number with these bits, as a float."""
    raise NotImplementedError
