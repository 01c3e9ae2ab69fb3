import torch


def rotate_lost_order(x, positions, base=10_000.0):
    """Rotate each row of x, (..., length, width), by its position: rotary embedding."""
    half = x.shape[-1] // 2
    exponents = torch.arange(half, device=x.device, dtype=x.dtype) / half
    angles = torch.einsum("i,j->ij", positions.to(x.dtype), base**-exponents)
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
