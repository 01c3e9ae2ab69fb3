"""Sums over ranks as they are made on the way: hop by hop, each partial sum rounded to the dtype.

A ring passes each chunk of the tensor from rank to rank, so that a partial sum of n ranks has been rounded
n − 1 times; in a tree it is log₂ n times. All ranks get the same result, as in an all-reduce.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_items
from amp_lessons._base.text.describing import describe
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.formats import FloatFormat

# --- arithmetic in a format, done in a wider one and rounded after each operation


@dataclass(frozen=True)
class Arithmetic:
    """Arithmetic in a dtype, or in a format that PyTorch has no dtype for.

    Values are kept in ``wide``, rounded: float64 for itself, float32 for all others. That gives the rounding
    of the exact sum, as float32 has more than twice the digits of any narrower format, and two (S. A.
    Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995).
    """

    of: torch.dtype | FloatFormat

    @property
    def wide(self) -> torch.dtype:
        """The dtype that values are kept in."""
        return torch.float64 if self.of is torch.float64 else torch.float32

    def rounded(self, values: Tensor) -> Tensor:
        """Round values, of ``wide``, to the format."""
        if isinstance(self.of, FloatFormat):
            return self.of.quantize(values)
        return values if self.of is self.wide else values.to(self.of).to(self.wide)

    def rounded_number(self, number: float) -> float:
        """Round one number to the format."""
        return self.rounded(torch.tensor(number, dtype=self.wide)).item()

    def stored(self, values: Tensor) -> Tensor:
        """Return rounded values in the dtype itself; in ``wide`` where PyTorch has none."""
        return values if isinstance(self.of, FloatFormat) else values.to(self.of)


def arithmetic(dtype: torch.dtype | FloatFormat) -> Arithmetic:
    """Return the arithmetic of a dtype. Raises TypeError for what is no floating dtype."""
    floating = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if not floating and not isinstance(dtype, FloatFormat):
        raise TypeError(f"dtype is a floating dtype such as torch.bfloat16, not {describe(dtype)}")
    if dtype in _WITHOUT_SUMS:
        raise TypeError(
            f"dtype is one that sums can be kept in, as torch.bfloat16; {dtype} holds no sign or pairs"
        )
    return Arithmetic(dtype)


_WITHOUT_SUMS = {getattr(torch, name, None) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2")} - {None}


# --- where the mean over ranks is divided: before the sum, after it, or a part here and a part there.
#
# Before it, small gradients fall below what the format can hold; after it, large sums above. Each way
# below is one that a library takes, with the place in its source where it does.


@dataclass(frozen=True)
class Factors:
    """The factors of each rank's values before the sum, and of the sum afterwards."""

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


_GLOO_SEGMENT_BYTES = 1024 * 1024  # gloo/allreduce.h, kMaxSegmentSize


@dataclass(frozen=True)
class Hop:
    """The partial sums that exist after a hop.

    ``partial_sums`` is (k, …), k partial sums of each element, on their way to be one; ``ranks``, of the same
    shape, says on which rank each of them is.
    """

    partial_sums: Tensor
    ranks: Tensor


@dataclass(frozen=True)
class Reduction:
    """A reduction with its way: ``hops[0]`` is what the ranks brought, the last one holds one sum.

    ``result`` is of the dtype reduced in; ``exact`` is the same in float64, of the values as they were given.
    """

    algorithm: str
    op: str
    result: Tensor
    exact: Tensor
    hops: tuple[Hop, ...]

    @property
    def relative_error(self) -> float:
        """The norm of what is wrong with the result, by the norm of the exact one."""
        return ((self.result.double() - self.exact).norm() / self.exact.norm()).item()

    @property
    def size(self) -> float:
        """The part of the exact result that is there: 1 for all, 0.5 where half of its length is lost."""
        exact = self.exact.flatten()
        return (self.result.double().flatten() @ exact / (exact @ exact)).item()


def reduce(
    tensors: Sequence[Tensor] | Tensor,
    dtype: torch.dtype | FloatFormat,
    algorithm: str = "ring",
    op: str = "mean",
) -> Tensor:
    """Return what an all-reduce of ``tensors``, one per rank, gives if every hop is rounded to ``dtype``.

    ``tensors`` are of one shape, or one tensor (ranks, …); they are rounded to ``dtype`` first. ``dtype`` is
    any floating dtype, or a format such as ``formats.FORMATS["tf32"]``; the result has it, or float32 for a
    format without a dtype. ``algorithm`` is one of ``ALGORITHMS``:

    - "ring": chunk c of the tensor starts at rank c + 1 and is complete on rank c, as in NCCL
      (src/device/all_reduce.h, runRing).
    - "gloo": the ring of ``torch.distributed``'s gloo backend, which runs the other way round and cuts chunks
      to whole segments (gloo/allreduce.cc, ring); equal to it bit for bit.
    - "tree": neighbours in pairs, then pairs of pairs. NCCL's double binary tree is as deep, but pairs
      others (src/graph/trees.cc).

    ``op`` is one of ``AVERAGINGS``, which says who divides where. Simulated: no process is started. Raises
    TypeError or ValueError for what is none of these.
    """
    stack, format = _stack(tensors), arithmetic(dtype)
    (last,) = deque(_hops(stack, format, algorithm, op), maxlen=1)
    return _finish(last, stack, format, op)


def reduction(
    tensors: Sequence[Tensor] | Tensor,
    dtype: torch.dtype | FloatFormat,
    algorithm: str = "ring",
    op: str = "mean",
) -> Reduction:
    """Return what ``reduce`` does, with the partial sums of every hop, and the exact result beside it."""
    stack, format = _stack(tensors), arithmetic(dtype)
    hops = tuple(_hops(stack, format, algorithm, op))
    exact = stack.double().sum(0) / (1 if op == "sum" else len(stack))
    return Reduction(algorithm, op, _finish(hops[-1], stack, format, op), exact, hops)


def _hops(stack: Tensor, format: Arithmetic, algorithm: str, op: str) -> Iterator[Hop]:
    """Yield the hops of the values as they are sent: rounded, and multiplied by what comes before the sum."""
    for value, name, known in ((algorithm, "algorithm", ALGORITHMS), (op, "op", AVERAGINGS)):
        require(value, str, name, f"a name such as {next(iter(known))!r}")
        if value not in known:
            raise ValueError(f"there is no {name} {value!r}; {did_you_mean(value, known)}")
    sent = format.rounded(stack.to(format.wide))
    factor = AVERAGINGS[op].factors(len(stack), format).before
    if factor != 1:
        sent = format.rounded(sent * factor)
    flat = sent.reshape(len(sent), -1)  # not flatten(1), which wants more of each rank than one number
    return ALGORITHMS[algorithm](flat, stack.shape[1:], format)


def _finish(hop: Hop, stack: Tensor, format: Arithmetic, op: str) -> Tensor:
    total = hop.partial_sums[0]
    divisor = AVERAGINGS[op].factors(len(stack), format).after
    return format.stored(format.rounded(total / divisor) if divisor != 1 else total)


def _stack(tensors: Sequence[Tensor] | Tensor) -> Tensor:
    """Return one tensor (ranks, …). Raises TypeError or ValueError for what cannot be one."""
    if isinstance(tensors, Tensor):
        if tensors.dim() == 0:
            raise ValueError("tensors is one tensor per rank, along the first dimension, not a single number")
        stack = tensors.detach()
    else:
        items = require_items(tensors, Tensor, "tensors", "a floating tensor, one per rank")
        shapes = {tuple(item.shape) for item in items}
        if len(shapes) > 1:
            raise ValueError(f"tensors are of one shape, not of {' and '.join(map(str, sorted(shapes)))}")
        stack = torch.stack([item.detach() for item in items]) if items else torch.empty(0)
    if not stack.is_floating_point():
        raise TypeError(f"tensors are of a floating dtype, not {stack.dtype}")
    if stack.numel() == 0:
        raise ValueError("tensors is at least one, each with at least one element")
    return stack


def _hop(totals: Tensor, ranks: Tensor, shape: torch.Size) -> Hop:
    """Return the hop of (k, elements) partial sums, each on a rank of its own or each element of one."""
    here = ranks.expand_as(totals)
    return Hop(totals.view(len(totals), *shape), here.reshape(len(totals), *shape))


def _around(sent: Tensor, shape: torch.Size, format: Arithmetic, chunk: int, step: int) -> Iterator[Hop]:
    """Send every chunk around the ring, from its neighbour ``step`` ranks on until it is home."""
    ranks, elements = sent.shape
    yield _hop(sent, torch.arange(ranks, device=sent.device).unsqueeze(1), shape)
    home = torch.arange(elements, device=sent.device).unsqueeze(0) // chunk
    holder = (home + step) % ranks
    total = sent.gather(0, holder)
    for _ in range(ranks - 1):
        holder = (holder + step) % ranks
        total = format.rounded(total + sent.gather(0, holder))
        yield _hop(total, holder, shape)


def _ring(sent: Tensor, shape: torch.Size, format: Arithmetic) -> Iterator[Hop]:
    ranks, elements = sent.shape
    return _around(sent, shape, format, -(-elements // ranks), 1)


def _gloo(sent: Tensor, shape: torch.Size, format: Arithmetic) -> Iterator[Hop]:
    ranks, elements = sent.shape
    itemsize = 4 if isinstance(format.of, FloatFormat) else format.of.itemsize
    return _around(sent, shape, format, _gloo_chunk(ranks, elements, itemsize), -1)


def _gloo_chunk(ranks: int, elements: int, itemsize: int) -> int:
    """Return how many elements a chunk has: as many segments for each rank, at least two."""
    nbytes = elements * itemsize
    segments = max(-(-nbytes // _GLOO_SEGMENT_BYTES), 2 * ranks)
    per_rank = -(-segments // ranks)
    segment = -(-nbytes // (per_rank * ranks))
    return per_rank * -(-segment // itemsize)


def _tree(sent: Tensor, shape: torch.Size, format: Arithmetic) -> Iterator[Hop]:
    total, ranks = sent, torch.arange(len(sent), device=sent.device).unsqueeze(1)
    yield _hop(total, ranks, shape)
    while len(total) > 1:
        pairs = len(total) // 2 * 2  # the last one of an odd number waits for the next level
        summed = format.rounded(total[0:pairs:2] + total[1:pairs:2])
        total, ranks = torch.cat([summed, total[pairs:]]), torch.cat([ranks[0:pairs:2], ranks[pairs:]])
        yield _hop(total, ranks, shape)


ALGORITHMS: dict[str, Callable[[Tensor, torch.Size, Arithmetic], Iterator[Hop]]] = {
    "ring": _ring,
    "tree": _tree,
    "gloo": _gloo,
}
