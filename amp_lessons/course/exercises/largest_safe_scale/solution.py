import math


def largest_safe_scale(gradients):
    """Return the largest power of two that overflows no gradient in fp16."""
    # from 65520 on, fp16 rounds up to inf; below, down to 65504
    limit = math.nextafter(65520.0, 0.0)
    largest = max(gradient.abs().max().item() for gradient in gradients)
    _, exponent = math.frexp(limit / largest)
    return 2.0 ** (exponent - 1)
