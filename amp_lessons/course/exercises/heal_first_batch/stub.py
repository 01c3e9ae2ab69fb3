import torch


def normalise_first_batch(x, eps=1e-8):
    """Divide each row of x, (..., width), by its root mean square; return the dtype of x."""
    mean_square = x.square().mean(dim=-1, keepdim=True)
    scaled = x / torch.sqrt(mean_square + eps)
    return scaled.to(x.dtype)
