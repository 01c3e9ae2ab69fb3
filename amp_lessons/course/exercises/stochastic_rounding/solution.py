import torch


def round_stochastically(x, generator):
    """Round an fp32 tensor to bf16, up or down at random, so that the mean of many roundings is x."""
    noise = torch.randint(0, 2**16, x.shape, generator=generator, dtype=torch.int32)
    rounded = ((x.view(torch.int32) + noise) & -(2**16)).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)
