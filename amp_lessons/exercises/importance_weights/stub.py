def importance_weights(new_logprobs, old_logprobs, cap):
    """Return one weight in fp32 for each token: its probability now over its probability then, up to cap."""
    raise NotImplementedError
