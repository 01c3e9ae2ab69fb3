import torch


def fp8_linear(x, weight):
    """Return x times the transpose of weight, by casts to 8 bits, forward and backward."""

    def cast(tensor, dtype):  # the scaled cast, given
        amax = tensor.float().abs().max() if tensor.numel() else torch.zeros(())
        scale = amax.clamp(min=1e-30) / torch.finfo(dtype).max
        return (tensor.float() / scale).to(dtype), scale

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            raise NotImplementedError

        @staticmethod
        def backward(ctx, gradient):
            raise NotImplementedError

    return Product.apply(x, weight)
