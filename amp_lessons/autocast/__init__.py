"""Which dtype autocast picks, asked of PyTorch itself, for any operation and any model, on any machine.

``policy``, ``entries``, ``explain``, ``atlas`` and ``differences`` answer for operations. ``cuda_rules``
brings CUDA's answers to the CPU. ``record`` writes the ledger of a model; ``fake_tensors`` and ``fake_copy``
let it do so for models of any size.

Five rooms, each of which imports only from those before it: ``cast_policy`` (what autocast does to an
operation), ``cuda_on_cpu`` (CUDA's answers and kernels on the CPU), ``running`` (run a model once, watched,
and leave no trace), ``ledger`` (write down what was seen) and ``islands`` (which modules go wrong, and need
fp32). From outside a room its face is imported, not what lies inside.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
