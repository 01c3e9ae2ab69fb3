"""How many bytes a rank sends in each collective, by the algorithms that send the fewest.

Each is a closed formula in the size of the whole tensor, the one that an all-gather leaves and a
reduce-scatter starts from (NVIDIA/nccl-tests, doc/PERFORMANCE.md, derives them). Gloo's all-reduce,
all-gather and broadcast send as much; its reduce-scatter is an all-reduce, and sends twice as much
(torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, reduce_scatter_tensor_coalesced).
"""

from __future__ import annotations

from fractions import Fraction

from amp_lessons.arguments import require_whole

# How often the whole tensor, but for a rank's own n-th part, passes through each rank, on average over ranks
PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1, "all-to-all": 1}


def sent_bytes(collective: str, nbytes: int, ranks: int) -> Fraction:
    """Return the bytes that each rank sends for a whole tensor of ``nbytes``: (n − 1)/n of it, or twice that.

    For a broadcast, in which the last rank sends nothing, it is the average over ranks. Raises ValueError for
    a collective that is none of ``PASSES``.
    """
    if collective not in PASSES:
        raise ValueError(f"there is no collective {collective!r}; there are {', '.join(PASSES)}")
    require_whole(nbytes, "nbytes", least=0)
    require_whole(ranks, "ranks")
    return PASSES[collective] * nbytes * Fraction(ranks - 1, ranks)
