import torch

predicted = {
    "F.linear(h, w)": torch.float16,  # in the list for lower precision
    "w @ w": torch.float16,  # the same: fp32 inputs are cast
    "F.gelu(h)": torch.float16,  # in no list: follows its input
    "h + 1": torch.float16,  # in no list
    "h.sqrt()": torch.float16,  # in no list
    "h.rsqrt()": torch.float32,  # in the fp32 list: one over a small root is large
    "h + w[:4]": torch.float32,  # in no list: ordinary type promotion
    "h.cumsum(0)": torch.float32,  # in the fp32 list
    "h.std()": torch.float16,  # in no list
    "h.exp()": torch.float32,  # in the fp32 list
    "h.log_softmax(-1)": torch.float32,  # in the fp32 list
    "F.group_norm(h, 2)": torch.float32,  # in the fp32 list
    "F.batch_norm(h, mean, var)": torch.float16,  # in no list; its statistics are fp32
    "F.cross_entropy(h, y)": torch.float32,
    # in no list, but it calls nll_loss, which is in the fp32 list
}
