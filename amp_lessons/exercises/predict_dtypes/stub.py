# h: fp16, (4, 8); w: fp32, (8, 8); write torch.float16 or torch.float32
predicted = {
    "F.linear(h, w)": ...,
    "w @ w": ...,
    "torch.relu(h)": ...,
    "h + 1": ...,
    "h * h": ...,
    "h ** 2": ...,
    "h + w[:4]": ...,
    "h.sum()": ...,
    "h.mean()": ...,
    "h.exp()": ...,
    "h.softmax(-1)": ...,
    "F.layer_norm(h, (8,))": ...,
    "F.batch_norm(h, mean, var)": ...,
    "F.cross_entropy(h, y)": ...,
}
