"""Gradients under a loss scale: what a format does to them, what ``torch.amp.GradScaler`` does."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
