"""What the lessons train: data, models, and the loops that race."""

import pkgutil

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, [each.name for each in pkgutil.iter_modules(__path__)]
)
