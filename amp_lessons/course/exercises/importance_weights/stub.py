def importance_weights(trainer_logprobs, engine_logprobs, cap):
    """Return one weight in fp32 for each token: the trainer's probability over the engine's, up to cap."""
    raise NotImplementedError
