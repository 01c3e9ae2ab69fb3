"""Training in eight and four bits: recipes as data, scaled products, linear layers that compute by them.

A linear layer makes three products: its output, the gradient of its input and that of its weight. Each
operand is divided by a scale and rounded to a small format; the product of what is left is multiplied by both
scales. A scale comes from the largest magnitude (amax) of the elements that share it, now or in earlier
steps. Masters, biases, activations between layers and the optimizer's state stay as they are. A recipe says,
product by product, which format an operand takes, who shares a scale, and how it is found.

Left out, beside torchao and Transformer Engine: weights and optimizer states that are stored in few bits,
collectives in FP8, the products inside of attention, and kernels that cast and multiply in one. What those
libraries compute can be had here on any device, and every cast can be looked at.

- ``layer``: the whole of it in one file: cast, product, layer. Begin there.
- ``recipes``: what a recipe is, and ``RECIPES``, those that models are trained with.
- ``scale_rules``: from the largest magnitude, of this step or of earlier ones, to the scale.
- ``products``: the device's own products of two scaled tensors, and why one cannot be had.
- ``accumulators``: sums in few bits, and what becomes of them as they get longer.
- ``transforms``: outliers spread.
- ``conversion``: a whole model; ``recording``: the casts and products of a stretch of training.
- ``placement``: where a scale puts a tensor on the number line, and what that costs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
