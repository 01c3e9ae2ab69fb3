def online_softmax(blocks):
    """Return softmax(all scores) @ all values, (..., d) in fp32, from one pass over blocks.

    Each block is a pair: scores of shape (..., k) and values of shape (k, d), both in 16 bits.
    """
    raise NotImplementedError
