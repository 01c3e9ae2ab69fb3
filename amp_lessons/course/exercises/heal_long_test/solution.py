import torch
import torch.nn.functional as F


@torch.no_grad()
def evaluate_long_test(model, loader):
    """Return a 16-bit model's mean loss and accuracy over a loader's samples, as floats."""
    zero = next(model.parameters()).new_zeros((), dtype=torch.float32)
    loss_sum, correct, samples = zero.clone(), zero.clone(), 0
    for inputs, targets in loader:
        logits = model(inputs)
        loss_sum += F.cross_entropy(logits.float(), targets, reduction="sum")
        correct += (logits.argmax(dim=-1) == targets).sum()
        samples += len(targets)
    return (loss_sum / samples).item(), (correct / samples).item()
