import torch


def training_step(weights, loss_fn, batch, lr, scale):
    """Make one step in fp16 on weights in fp32, in place; return the loss and the next scale, two floats."""
    copies = [weight.half().requires_grad_() for weight in weights]
    loss = loss_fn(copies, batch)
    gradients = torch.autograd.grad(loss * scale, copies)
    unscaled = [gradient.float() / scale for gradient in gradients]
    if not all(gradient.isfinite().all() for gradient in unscaled):
        return loss.item(), scale / 2
    for weight, gradient in zip(weights, unscaled, strict=True):
        weight -= lr * gradient
    return loss.item(), scale
