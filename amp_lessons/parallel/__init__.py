"""Several processes from a notebook; what they send, what they hold, and what rounding does on the way.

- ``running``: ``run``, a function on several gloo processes, and what went wrong on which of them;
  ``rank`` is what runs there, in workers as checks have them (``_base.worker``).
- ``reductions``: sums over ranks, simulated hop by hop, and where PyTorch and NCCL divide a mean.
- ``growing``: how wrong a mean gets with more ranks, and on which way one element is added up.
- ``traffic``: what a step of DDP, FSDP2 or tensor parallelism sends, asked of PyTorch's own engines in a
  group that needs no processes; ``collectives`` records what they call, and says how many bytes that is.
- ``memory``: bytes per parameter and rank, by the conventions of the tables in use.
- ``installed``: what the installed PyTorch does where versions differ.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
