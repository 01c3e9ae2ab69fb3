"""Mistakes in sharded masters: which dtype each number really had, where it was kept, and what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, note
from amp_lessons.course.exercises.bed import described
from amp_lessons.course.exercises.ranks import RANKS
from amp_lessons.course.exercises.sharded_masters.shards_there import loss, make_model
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCE = 2.0**-20  # of the magnitudes added: a few roundings of fp32
_MOST_GATHERED = 1.5  # times the weights in compute_dtype: there may be a message about them as well


Phase = dict[str, Any]  # what a rank has written down: after __init__, gather, reduce, and after a step
Sent = list[tuple[str, torch.dtype, int]]  # the name, dtype and elements of each collective


def of_shard(seen: Phase, beside: Beside, rank: int) -> Iterator[Finding]:
    """Find a shard that is no parameter, is not in fp32, or is not this rank's equal share of all weights."""
    shard = seen["shard"]
    if not isinstance(shard, Tensor) or not seen["fit"]:
        yield failed(
            "no_shard",
            f"after __init__, shard is {described(shard)}: an optimizer is given it, so it must be a "
            "parameter",
            "self.shard = nn.Parameter(…), made of this rank's part of all weights, flat and in fp32",
        )
        return
    if shard.dtype != torch.float32:
        yield catalogue.ranks.masters_not_fp32(str(shard.dtype))
    if shard.shape != (beside.share,):
        yield failed(
            "shard_size",
            f"the shard has the shape {tuple(shard.shape)}, for a rank's equal share of "
            f"{len(beside.masters)} "
            f"weights: ({beside.share},) were expected",
            "join all weights flat, pad with zeros up to a multiple of the number of ranks, and "
            "keep one part",
        )
    yield from of_masters(seen, beside, rank, "after __init__")


def of_masters(seen: Phase, beside: Beside, rank: int, when: str = "after a step") -> Iterator[Finding]:
    """Compare the shard's values with the weights of one process; look for what else is kept."""
    wanted = beside.part(beside.masters, rank)
    values, padding = seen["shard"].tensor_split([len(wanted)])
    if not torch.allclose(values, wanted, rtol=_TOLERANCE, atol=1e-7):
        yield failed(
            "shard_values",
            f"{when} the shard's values are not this rank's part of all weights: they are off by up to "
            f"{float((values - wanted).abs().max()):.2g}",
            "parts follow each other in the order of the ranks, weights in that of "
            "model.parameters(); nobody "
            "but the optimizer changes them, and they are never rounded",
        )
    yield from _padded_with_more(padding, f"{when} the shard")
    if beside.dtype == torch.float32:  # what is gathered to compute with looks like masters then
        return
    for name, elements in seen["kept"].items():
        if elements >= len(beside.masters):
            yield failed(
                "whole_masters_kept",
                f"{when} {name} holds {elements} numbers in fp32 on every rank, as many as there are "
                "weights: nothing is saved",
                "keep this rank's part alone, a copy of it (.clone()): a view keeps the whole in memory",
            )


def _padded_with_more(padding: Tensor, what: str) -> Iterator[Finding]:
    if padding.count_nonzero():
        yield failed(
            "padding_not_zero",
            f"{what} is padded with {padding.tolist()}, which belongs to no weight: a norm over the shards "
            "counts it",
            "pad weights and gradients with zeros: nn.functional.pad(flat, (0, -len(flat) % world_size))",
        )


def of_gathering(seen: Phase, beside: Beside) -> Iterator[Finding]:
    """Find gathered weights of a wrong dtype or value, and more bytes sent for them than 16 bits need."""
    others = sorted({dtype_name(dtype) for dtype in seen["dtypes"] if dtype != beside.dtype})
    if others:
        yield failed(
            "compute_dtype_ignored",
            f"after gather the model's weights are in {', '.join(others)} although "
            f"{dtype_name(beside.dtype)} was "
            "asked for: forward and backward compute in that, and no result would be far off",
            "give each parameter a value in compute_dtype: parameter.data = …",
        )
    if not torch.equal(seen["weights"], beside.masters.to(beside.dtype).float()):
        yield failed(
            "gathered_wrong",
            "after gather the model's weights are not the masters of all ranks, rounded: the step before was "
            "not gathered, or parts are in the wrong place",
            "gather anew in every step; cut off the padding at the end, and split by p.numel()",
        )
    nbytes = sum(elements * dtype.itemsize for _, dtype, elements in seen["sent"])
    dtypes = ", ".join(sorted({str(dtype) for _, dtype, _ in seen["sent"]}))
    needed = RANKS * beside.share * beside.dtype.itemsize
    if nbytes > _MOST_GATHERED * needed:
        yield failed(
            "gathered_in_fp32",
            f"weights were sent in {dtypes}, {nbytes} bytes, where {needed} in {dtype_name(beside.dtype)} "
            "are all that forward computes with",
            "cast the shard to compute_dtype first, then gather; and gather once",
        )


def of_reducing(seen: Phase, beside: Beside, rank: int) -> Iterator[Finding]:
    """Find a shard that was replaced, sums in 16 bits, and a gradient that is not the mean over ranks."""
    if not seen["same"]:
        yield failed(
            "shard_replaced",
            "shard is another tensor than it was after __init__: the optimizer goes on stepping the old one",
            "write into the shard there is, and leave the writing to the optimizer",
        )
    # others, an all-to-all say, only hand gradients on: whether they were added up in fp32, the sum tells
    sums = [dtype for name, dtype, elements in seen["sent"] if "reduce" in name and elements > 4]
    halves = [dtype for dtype in sums if dtype.itemsize < torch.float32.itemsize]
    if halves:
        yield _reduced_in_half("added up over ranks", halves[0])
    gradient = seen["gradient"]
    if gradient is None or gradient.dtype != torch.float32:
        yield failed(
            "no_shard_gradient",
            f"after reduce, shard.grad is {described(gradient)}: the optimizer has nothing to apply",
            "self.shard.grad = …, of the shape and dtype of the shard",
        )
        return
    yield from _wrong_gradient(gradient, beside, rank)
    if seen["kept_gradients"]:
        yield failed(
            "gradients_kept",
            "after reduce the model's own gradients are still there: the next backward pass adds to "
            "them, and "
            "they take the memory that was to be saved",
            "set p.grad = None for every parameter once it is reduced",
        )


def of_traffic(sent: Sent, beside: Beside) -> Iterator[Finding]:
    """Remark on gradients that every rank was sent in full, which is right, and twice what has to be sent."""
    if any(name == "all-reduce" and elements >= len(beside.masters) for name, _, elements in sent):
        yield note(
            "shard_all_reduced",
            "reduce sends the whole mean gradient to every rank, by an all-reduce, and throws away what is "
            "not its share: twice the bytes of a reduce-scatter",
            "dist.reduce_scatter_tensor(mine, whole) sends each rank its share alone",
        )


def _reduced_in_half(how: str, half: torch.dtype) -> Finding:
    overflow = "where a sum overflows loses what the mean could hold"
    effect = overflow if "added" in how else "drops a bit of what is subnormal"
    return failed(
        "shard_reduced_in_half",
        f"gradients were {how} in {dtype_name(half)}, which rounds, and {effect}",
        "make fp32 of the gradients first, as reduce_dtype=torch.float32 does: p.grad.float()",
    )


def _wrong_gradient(gradient: Tensor, beside: Beside, rank: int) -> Iterator[Finding]:
    stacked = torch.stack([beside.part(each, rank) for each in beside.of_ranks])
    wanted, seen = beside.part(beside.gradient, rank), gradient[: stacked.shape[1]]
    if _close(seen, wanted, stacked):
        yield from _padded_with_more(gradient[stacked.shape[1] :], "shard.grad")
        return
    half, ranks = stacked.to(beside.dtype), len(stacked)  # as they were: backward computed in it
    in_half = {
        "added up": sum(half[1:], half[0]).float() / ranks,
        "added up, and divided,": (sum(half[1:], half[0]) / ranks).float(),
        "divided": (half / ranks).float().sum(0),
        "divided, and added up,": sum((half / ranks)[1:], (half / ranks)[0]).float(),
    }
    for how, value in in_half.items():
        if beside.dtype != torch.float32 and _close(seen, value, stacked):
            yield _reduced_in_half(how, beside.dtype)
    if _close(seen, stacked.sum(0), stacked):
        yield failed(
            "shard_gradient_summed",
            "shard.grad is the sum over ranks, not the mean: plain SGD takes steps as many times "
            "too long, and "
            "Adam hides it",
            "divide by dist.get_world_size(); where an installed gloo sums although ReduceOp.AVG "
            "was asked for, "
            "divide yourself",
        )
    yield failed(
        "wrong_shard_gradient",
        "shard.grad is not this rank's part of the mean of all ranks' gradients (inf, where one has "
        "overflowed)",
        "join the gradients flat in the order of the parameters, padded as the weights are, and reduce over "
        "all ranks; change nothing else",
    )


def _close(seen: Tensor, wanted: Tensor, stacked: Tensor) -> bool:
    finite = wanted.isfinite()
    near = (seen - wanted).abs()[finite] <= _TOLERANCE * stacked.abs().mean(0)[finite]
    return bool(near.all()) and torch.equal(seen.isfinite(), finite)


# --- the same training in one process: all masters in one fp32 tensor, every rank's gradient computed here


class Beside:
    """Weights and mean gradient as they should be: flat fp32 tensors in the order of the parameters."""

    def __init__(self, weights: Tensor, dtype: torch.dtype) -> None:
        self.dtype, self.masters = dtype, weights
        self.of_ranks: list[Tensor] = []
        self._model = make_model(weights).to(dtype)

    @property
    def gradient(self) -> Tensor:
        """The mean of the ranks' gradients."""
        return torch.stack(self.of_ranks).double().mean(0).float()

    @property
    def share(self) -> int:
        """How many weights each rank keeps, padding included."""
        return -(-len(self.masters) // RANKS)

    def part(self, flat: Tensor, rank: int) -> Tensor:
        """Return a rank's share of a flat tensor, without padding."""
        return flat[rank * self.share :][: self.share]

    def compute(self, batches: list[tuple[Tensor, Tensor]], loss_weight: float) -> None:
        """Compute every rank's gradient in ``dtype``, at the masters rounded to it."""
        self.of_ranks = []
        nn.utils.vector_to_parameters(self.masters.to(self.dtype), self._model.parameters())
        for batch in batches:
            self._model.zero_grad()
            loss(loss_weight, self._model, *batch).backward()
            gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
            self.of_ranks.append(torch.cat([each.float().flatten() for each in gradients]))

    def step(self, rate: float) -> None:
        """Take a step of plain SGD, if all gradients are finite: a scaler of all ranks skips the others."""
        if self.may_step:
            self.masters = self.masters - rate * self.gradient

    @property
    def may_step(self) -> bool:
        """Whether no rank's gradient has overflowed."""
        return bool(self.gradient.isfinite().all())
