import torch


def group_quantize(weight, group_size):
    """Return INT4 codes of weight (out, in) as int8, and a bf16 scale for each group."""
    if not weight.isfinite().all():
        raise ValueError("INT4 has no code for inf or NaN")
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % group_size))
    groups = padded.reshape(rows, -1, group_size)
    amax = groups.abs().amax(-1)
    scales = (amax / 7).clamp(min=1e-30).bfloat16()
    codes = (groups / scales.float()[..., None]).round().clamp(-8, 7).to(torch.int8)
    return codes.reshape(rows, -1)[:, :columns], scales
