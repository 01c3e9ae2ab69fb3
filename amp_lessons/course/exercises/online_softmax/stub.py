def online_softmax(blocks):
    """Return softmax(all scores) @ all values, of shape (..., d) in fp32, from one pass over the blocks.

    Each block is a pair: scores of shape (..., k) and values of shape (k, d), both in 16 bits.
    """
    raise NotImplementedError
