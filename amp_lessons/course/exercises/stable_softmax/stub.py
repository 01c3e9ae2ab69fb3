def softmax_with_logsumexp(scores, dim):
    """Return softmax along dim, in the dtype of scores, and logsumexp along dim, in fp32."""
    raise NotImplementedError
