def importance_weights(trainer_logprobs, engine_logprobs, cap):
    """Return a weight in fp32 per token: trainer's probability over the engine's, up to cap."""
    raise NotImplementedError
