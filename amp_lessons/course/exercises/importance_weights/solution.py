import torch


def importance_weights(trainer_logprobs, engine_logprobs, cap):
    """Return a weight in fp32 per token: trainer's probability over the engine's, up to cap."""
    trainer, engine = trainer_logprobs.detach().float(), engine_logprobs.float()
    weights = (trainer - engine).exp().clamp(max=cap)
    return torch.where(trainer.isfinite() & engine.isfinite(), weights, 0.0)
