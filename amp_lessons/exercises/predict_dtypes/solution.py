import torch

predicted = {
    "F.linear(h, w)": torch.float16,  # in the list for lower precision
    "w @ w": torch.float16,  # the same: fp32 inputs are cast
    "torch.relu(h)": torch.float16,  # in no list: follows its input
    "h + 1": torch.float16,  # in no list
    "h * h": torch.float16,  # in no list, so it overflows above 255
    "h ** 2": torch.float32,  # pow is in the fp32 list
    "h + w[:4]": torch.float32,  # in no list: ordinary type promotion
    "h.sum()": torch.float32,  # in the fp32 list
    "h.mean()": torch.float16,  # in no list
    "h.exp()": torch.float32,  # in the fp32 list
    "h.softmax(-1)": torch.float32,  # in the fp32 list
    "F.layer_norm(h, (8,))": torch.float32,  # in the fp32 list
    "F.batch_norm(h, mean, var)": torch.float16,  # in no list; its statistics are fp32
    "F.cross_entropy(h, y)": torch.float32,  # in no list, but it calls nll_loss, which is in the fp32 list
}
