import torch


def importance_weights(new_logprobs, old_logprobs, cap):
    """Return one weight in fp32 for each token: its probability now over its probability then, up to cap."""
    new, old = new_logprobs.detach().float(), old_logprobs.float()
    weights = (new - old).exp().clamp(max=cap)
    return torch.where(new.isfinite() & old.isfinite(), weights, 0.0)
