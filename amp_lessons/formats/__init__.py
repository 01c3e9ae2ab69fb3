"""Number formats: bits to values and back, rounding, ranges, and what rounding does to sums and products.

- ``floats``: ``FloatFormat``, which derives everything from how many bits a field has; ``catalogue``:
  ``FORMATS``.
- ``rounding``: the arithmetic that rounds whole tensors on any device.
- ``typed``: what a learner types, understood; ``compare``: what rounding did to a number.
- ``sums``: additions and matrix products in which every step is rounded.
- ``blocks``: formats whose elements share a scale (MX, NVFP4, one scale per tensor).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
