import torch


def round_to_bfloat16(x):
    """Round an fp32 tensor to the nearest bf16 values, ties to even; return them as fp32."""
    bits = x.view(torch.int32)
    last_kept_bit = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + last_kept_bit) & ~0xFFFF
    return torch.where(x.isnan(), x, rounded.view(torch.float32))
