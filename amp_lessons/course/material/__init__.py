"""What the lessons train: data, models, and the loops that race."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    [
        "charlm",
        "data",
        "decoder",
        "docstrings",
        "encoder",
        "generation",
        "mnist",
        "models",
        "pretrained",
        "race",
        "residual",
        "tensors",
    ],
)
