"""Where the mean over ranks is divided: before the sum, after it, or a part here and a part there.

Before it, small gradients fall below what the format can hold; after it, large sums above. Each way below is
one that a library takes, with the place in its source where it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from amp_lessons.parallel.arithmetic import Arithmetic


@dataclass(frozen=True)
class Factors:
    """What each rank multiplies its values by before the sum, and what the sum is divided by."""

    before: float = 1.0
    after: float = 1.0


@dataclass(frozen=True)
class Averaging:
    """A way to come from values of several ranks to one: who does it so, and by which factors."""

    name: str
    who: str
    source: str
    factors: Callable[[int, Arithmetic], Factors]


def _nccl(ranks: int, format: Arithmetic) -> Factors:
    return Factors(before=format.rounded_number(1 / ranks))  # the factor itself is of the tensor's dtype


def _fsdp(ranks: int, format: Arithmetic) -> Factors:
    if format.of in (torch.float32, torch.bfloat16):
        return _nccl(ranks, format)
    power = 1
    while ranks % power == 0 and ranks / power > power:
        power *= 2
    return Factors(before=1 / power, after=ranks / power)


AVERAGINGS = {
    way.name: way
    for way in (
        Averaging("sum", "a sum, no mean", "", lambda ranks, format: Factors()),
        Averaging(
            "mean",
            "gloo's ReduceOp.AVG: the sum, then divided",
            "torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: tensors[0] /= context_->size",
            lambda ranks, format: Factors(after=ranks),
        ),
        Averaging(
            "ddp",
            "DistributedDataParallel: each gradient times 1/n as it enters its bucket, then the sum",
            "torch/csrc/distributed/c10d/reducer.cpp, mark_variable_ready_dense: mul_out by 1 / div_factor_",
            lambda ranks, format: Factors(before=1 / ranks),
        ),
        Averaging(
            "nccl_avg",
            "NCCL's ncclAvg for floating dtypes: each value times 1/n rounded to the dtype, then the sum",
            "NCCL 2.30.7, src/enqueue.cc, hostToDevRedOp: ncclDevPreMulSum; its symmetric-memory kernels for "
            "reduce-scatter divide after the sum instead (src/device/symmetric/generate.py: FuncSumPostDiv)",
            _nccl,
        ),
        Averaging(
            "fsdp",
            "FSDP2 with NCCL: ncclAvg in fp32 and bf16; else a power of two near √n before, the rest after",
            "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, _get_gradient_divide_factors",
            _fsdp,
        ),
    )
}
