import torch


def train_left_behind(model, step, steps, decay):
    """Train by calling step(); return the moving average of each parameter, by name, in fp32."""
    average = {name: parameter.detach().float().clone()
               for name, parameter in model.named_parameters()}
    for _ in range(steps):
        step()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                average[name].mul_(decay).add_(parameter, alpha=1 - decay)
    return {name: value.float() for name, value in average.items()}
