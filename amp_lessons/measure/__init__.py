"""Time, memory and throughput, measured honestly, and memory predicted without running anything."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
