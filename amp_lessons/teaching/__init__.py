"""What teaches the course to others: grading what they hand in, work for groups."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, ["grading", "groups"])
