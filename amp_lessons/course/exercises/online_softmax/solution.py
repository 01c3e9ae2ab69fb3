import torch


def online_softmax(blocks):
    """Return softmax(all scores) @ all values, (..., d) in fp32, from one pass over blocks."""
    largest, total, weighted = torch.tensor(torch.finfo(torch.float32).min), 0.0, 0.0
    for scores, values in blocks:
        with torch.autocast(scores.device.type, enabled=False):
            scores, values = scores.float(), values.float()
            before, largest = largest, torch.maximum(largest, scores.amax(-1, keepdim=True))
            rescale, weights = (before - largest).exp(), (scores - largest).exp()
            total = total * rescale + weights.sum(-1, keepdim=True)
            weighted = weighted * rescale + weights @ values
    # A row that has seen a key has exp(0) among its weights: 1 is the smallest sum of all but
    # masked rows
    return weighted / total.clamp(min=1.0)
