import torch


def rotate_lost_order(x, positions, base=10_000.0):
    """Rotate each row of x, (..., length, width), by its position: rotary embedding."""
    half = x.shape[-1] // 2
    exponents = torch.arange(half, device=x.device, dtype=torch.float32) / half
    angles = positions.float()[:, None] * base**-exponents
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
