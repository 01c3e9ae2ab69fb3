# h: fp16, (4, 8); w: fp32, (8, 8); write torch.float16 or torch.float32
predicted = {
    "F.linear(h, w)": ...,
    "w @ w": ...,
    "F.gelu(h)": ...,
    "h + 1": ...,
    "h.sqrt()": ...,
    "h.rsqrt()": ...,
    "h + w[:4]": ...,
    "h.cumsum(0)": ...,
    "h.std()": ...,
    "h.exp()": ...,
    "h.log_softmax(-1)": ...,
    "F.group_norm(h, 2)": ...,
    "F.batch_norm(h, mean, var)": ...,
    "F.cross_entropy(h, y)": ...,
}
