def softmax_with_logsumexp(scores, dim):
    """Return softmax along dim, in the dtype of scores, and logsumexp along dim, in fp32."""
    wide = scores.float()
    largest = wide.amax(dim, keepdim=True)
    exponentials = (wide - largest).exp()
    total = exponentials.sum(dim, keepdim=True)
    logsumexp = (largest + total.log()).squeeze(dim)
    return (exponentials / total).to(scores.dtype), logsumexp
