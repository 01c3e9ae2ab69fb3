"""Several processes from a notebook; what they send, what they hold, and what rounding does on the way.

- ``running``: ``run``, a function on several gloo processes; ``launcher``, ``host`` and ``rank`` are the
  three processes' sides of it, ``endings`` puts what went wrong into words.
- ``reductions``: sums over ranks, simulated hop by hop; ``averaging``: where PyTorch and NCCL divide.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
