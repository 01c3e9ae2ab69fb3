"""Several processes from a notebook; what they send, what they hold, and what rounding does on the way.

- ``running``: ``run``, a function on several gloo processes; ``launcher``, ``host`` and ``rank`` are the
  three processes' sides of it, ``endings`` puts what went wrong into words.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
