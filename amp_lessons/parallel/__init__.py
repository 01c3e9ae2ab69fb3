"""Several processes from a notebook; what they send, what they hold, and what rounding does on the way.

- ``running``: ``run``, a function on several gloo processes; ``launcher``, ``host`` (``hosted``) and ``rank``
  are the three processes' sides of it, ``endings`` puts what went wrong into words.
- ``reductions``: sums over ranks, simulated hop by hop; ``averaging``: where PyTorch and NCCL divide.
- ``growing``: how wrong a mean gets with more ranks, and on which way one element is added up.
- ``traffic``: what a step of DDP, FSDP2 or tensor parallelism sends, asked of PyTorch's own engines
  (``strategies``, ``buckets``) in a ``fake_group``; ``collectives`` sees what they call, ``volumes`` says how
  many bytes that is, ``ledger`` holds it.
- ``memory``: bytes per parameter and rank, by the conventions of the tables in use.
- ``installed``: what the installed PyTorch does where versions differ.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
