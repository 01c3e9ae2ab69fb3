"""The idea of FSDP on two real processes: who keeps what, in which dtype, and does it train as one would?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.course.exercises import bed, ranks
from amp_lessons.course.exercises.ranks import RANKS
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.sharded_masters import shards_there
from amp_lessons.course.exercises.sharded_masters.shards_there import (
    FEATURES,
    count_weights,
    loss,
    make_model,
)
from amp_lessons.formats.dtypes import dtype_name

_OUTPUTS = {torch.float16: 3, torch.bfloat16: 2, torch.float32: 3}  # 63 weights ask for padding, 56 do not
_STEPS = (  # the loss's weight, and a factor of rank 1's targets
    (1.0, 1.0),
    (2.0**-18, 1.0),  # fp16 holds gradients that lose a bit when they are divided
    (1.0, 1e6),  # beyond fp16, within bf16
)
_RATE = 2.0**-9  # updates so small that 16 bits would lose most of them
_TOLERANCE = 2.0**-20  # of the magnitudes added: a few roundings of fp32
_MOST_GATHERED = 1.5  # times the weights in compute_dtype: there may be a message about them as well
_RequireRight = Callable[[dict[str, Any], int], None]  # of what a rank has noted


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Train in three dtypes; what each rank held and sent after every call is looked at here."""
    bed.require_class(worker, "ShardedMasters")
    bed.function(worker, "ShardedMasters", None, None)
    trainings = [_training(dtype, draw) for dtype in _OUTPUTS]
    ends = ranks.run(worker, f"{shards_there.__name__}:train", [given for given, _ in trainings])
    seen = {each["rank"]: each["told"]["phases"] for each in ends}
    required = [each for _, phases in trainings for each in phases]
    for n, require_right in enumerate(required):
        for rank in range(RANKS):
            for noted in seen.get(rank, [])[n : n + 1]:  # none, where a rank was stopped
                require_right(noted, rank)
    for told in (each["told"] for each in ends):  # of the rank that left first is the first
        if told["left"]:
            raise bed.Rejected(common_findings.leaving(told["left"]))
        bed.require_not_raised(told["raised"], told["part"] and f"in {told['part']}", told["part"])
    if [len(seen.get(rank, [])) for rank in range(RANKS)] != [len(required)] * RANKS:
        raise bed.Rejected(common_findings.ended("your code answered in the place of the check"))
    yield passed("masters_sharded", "each rank keeps its share of the weights in fp32, and no other")
    yield passed("computed_in_half", "weights were sent, and computed with, in the dtype asked for")
    yield passed("reduced_in_fp32", "gradients were added up over ranks in fp32, and averaged")
    yield passed("as_one_process", "after every step the weights are those of one process")
    reduced = [each for phase in seen[0] if "gradient" in phase for each in phase["sent"]]
    if any(name == "all-reduce" and elements >= count_weights(2) for name, _, elements in reduced):
        yield note(
            "shard_all_reduced",
            "reduce sends the whole mean gradient to every rank, by an all-reduce, and throws away what is "
            "not its share: twice the bytes of a reduce-scatter",
            "dist.reduce_scatter_tensor(mine, whole) sends each rank its share alone",
        )


def _training(dtype: torch.dtype, draw: torch.Generator) -> tuple[dict[str, Any], list[_RequireRight]]:
    """Draw a training, and do it here, in one process: return what ranks are given, and what to require.

    There is one requirement for each of the phases; it knows what is right, flat, in fp32 and padded.
    """
    count = count_weights(_OUTPUTS[dtype])
    padding = 0, -count % RANKS
    weights, steps = torch.randn(count, generator=draw) * 0.5, []
    masters = F.pad(weights, padding)
    phases: list[_RequireRight] = [partial(_require_shard, masters, count, "after __init__")]
    for number, (weight, poison) in enumerate(_STEPS, 1):
        batches = []
        for rank in range(RANKS):
            inputs = torch.randn(4 + rank, FEATURES, generator=draw)
            targets = torch.randn(4 + rank, _OUTPUTS[dtype], generator=draw) * math.exp(rank) * poison**rank
            batches.append((inputs, targets))
        gathered = masters[:count].to(dtype)
        of_ranks = F.pad(torch.stack([_gradient(gathered, weight, *batch) for batch in batches]), padding)
        phases.append(partial(_require_gathered, gathered, f"in step {number}"))
        phases.append(partial(_require_reduced, of_ranks.to(dtype), f"in step {number}"))
        made = bool(of_ranks.isfinite().all())  # a scaler of all ranks skips the others
        masters = masters - (_RATE * of_ranks.mean(0) if made else 0.0)
        phases.append(partial(_require_shard, masters, count, f"after step {number}"))
        steps.append({"loss_weight": weight, "batches": batches, "made": made})
    return {"dtype": dtype, "weights": weights, "rate": _RATE, "steps": steps}, phases


def _gradient(weights: Tensor, weight: float, inputs: Tensor, targets: Tensor) -> Tensor:
    model = make_model(weights)
    gradients = torch.autograd.grad(loss(weight, model, inputs, targets), list(model.parameters()))
    return torch.cat([each.float().flatten() for each in gradients])


def _require_shard(masters: Tensor, count: int, when: str, noted: dict[str, Any], rank: int) -> None:
    shard, wanted = noted["shard"], masters.chunk(RANKS)[rank]
    if not isinstance(shard, Tensor) or not noted["fit"] or shard.shape != wanted.shape:
        said = f"{when}, shard is {bed.described(shard)}: an optimizer is to be given a parameter of shape "
        hint = "join all weights flat, pad with -len(flat) % world_size zeros, and keep one part: "
        said += f"{tuple(wanted.shape)}, an equal share of {count} weights"
        bed.reject("no_shard", said, f"{hint}self.shard = nn.Parameter(…)")
    if shard.dtype != torch.float32:
        raise bed.Rejected(rules.ranks.masters_not_fp32(str(shard.dtype)))
    allowed = 1e-7 + _TOLERANCE * wanted.abs()
    if not bool(((shard - wanted).abs() <= allowed).all()):
        off = _farthest_off(shard, wanted, allowed)
        said = f"{when} the shard is not this rank's part of all weights: {off}"
        hint = "parts come in the order of the ranks, weights in that of model.parameters(), then zeros; "
        hint += "nobody but the optimizer changes them, and they are never rounded"
        bed.reject("shard_values", said, hint)
    for name, elements in noted["kept"].items():
        if elements >= count:
            said = (
                f"{when} the memory behind {name} holds {elements} numbers in fp32 on every rank, not fewer "
            )
            said += f"than there are weights, {count}"
            hint = "keep this rank's part alone, a copy of it (.clone()): a view keeps the whole in memory"
            bed.reject("whole_masters_kept", said, hint)


def _farthest_off(seen: Tensor, wanted: Tensor, allowed: Tensor | float = 0.0) -> str:
    off = ((seen - wanted).abs() - allowed).nan_to_num(torch.inf, torch.inf)
    n = int(torch.where(seen.isfinite() | wanted.isfinite(), off, -torch.inf).argmax())
    return f"at index {n} it is {float(seen[n]):.7g}, not {float(wanted[n]):.7g}"


def _require_gathered(wanted: Tensor, when: str, noted: dict[str, Any], rank: int) -> None:
    asked, weights = dtype_name(wanted.dtype), wanted.float()
    if others := {dtype_name(dtype) for dtype in noted["dtypes"] if dtype != wanted.dtype}:
        said = f"after gather the model's weights are in {', '.join(sorted(others))}, and {asked} was asked "
        said += "for"
        hint = "give each parameter a value in compute_dtype: parameter.data = …"
        bed.reject("compute_dtype_ignored", said, hint)
    if not torch.equal(noted["weights"], weights):
        said = f"{when} the weights that gather gave, joined flat, are not the masters of all ranks, "
        said += "rounded: "
        hint = "gather anew in every step; cut off the padding at the end, and split by p.numel()"
        bed.reject("gathered_wrong", said + _farthest_off(noted["weights"], weights), hint)
    nbytes = sum(elements * dtype.itemsize for _, dtype, elements in noted["sent"])
    enough = RANKS * -(-wanted.numel() // RANKS) * wanted.itemsize  # equal parts, the last one padded
    if nbytes > _MOST_GATHERED * enough:
        dtypes = ", ".join(sorted({str(dtype) for _, dtype, _ in noted["sent"]}))
        said = f"weights were sent in {dtypes}, {nbytes} bytes, where {enough} in {asked} are enough"
        hint = "cast the shard to compute_dtype first, then gather; and gather once"
        bed.reject("gathered_in_fp32", said, hint)


def _require_reduced(of_ranks: Tensor, when: str, noted: dict[str, Any], rank: int) -> None:
    gradient, half = noted["gradient"], of_ranks.chunk(RANKS, dim=1)[rank]
    parts, dtype = half.float(), dtype_name(half.dtype)
    if not isinstance(gradient, Tensor) or gradient.dtype != torch.float32:
        said = f"after reduce, the shard that the optimizer steps has the gradient {bed.described(gradient)}"
        hint = "self.shard.grad = …, of its shape and dtype; and self.shard stays the parameter that it was"
        bed.reject("no_shard_gradient", said, hint)
    if not _close(gradient, parts.mean(0), parts):
        off = f"{when} this rank's part of the mean gradient is wrong: "
        off += _farthest_off(gradient, parts.mean(0), _TOLERANCE * parts.abs().mean(0))
        if bool(gradient.isnan().any()) and any(name == "reduce" for name, *_ in noted["sent"]):
            off += "; dist.reduce promises the sum on one rank alone, and here others find NaN instead"
        if _close(gradient, sum(half[1:], half[0]).float() / RANKS, parts):
            hint = "make fp32 of them first, as reduce_dtype=torch.float32 does: p.grad.float()"
            bed.reject("shard_reduced_in_half", f"{off}, as far as adding up in {dtype} rounds", hint)
        hint = "join the gradients in the order of the parameters, pad them with zeros as the weights are, "
        hint += "add them up over all ranks and divide by their number, both in fp32; change nothing else"
        bed.reject("wrong_shard_gradient", off, hint)
    if noted["gradients_stay"]:
        said = "after reduce the model's own gradients are still there: the next backward pass adds to them"
        bed.reject("gradients_kept", said, "set p.grad = None for every parameter once it is reduced")


def _close(seen: Tensor, wanted: Tensor, parts: Tensor) -> bool:
    finite = wanted.isfinite()
    near = (seen - wanted).abs()[finite] <= _TOLERANCE * parts.abs().mean(0)[finite]
    return bool(near.all()) and torch.equal(seen.isfinite(), finite)
