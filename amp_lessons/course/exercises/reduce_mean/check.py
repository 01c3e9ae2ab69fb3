"""Does the mean come out, in fp32, and is it really a ring: who sends what to whom, in which dtype?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.parallel import sent_bytes

_ON_RANKS = "amp_lessons.course.exercises.reduce_mean.network_there:on_ranks"
_FP32_BYTES = 4


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Reduce gradients over several numbers of ranks, on a simulated network that records every message."""
    reduce_mean = bed.function(worker, "reduce_mean", [], 0, 1, None, None)
    for case in _cases(draw):
        given = case.chunks()
        told, _ = reduce_mean.called_by(_ON_RANKS, given, about=case.what)
        _require_delivered(told, case)
        before = [each for chunks in case.chunks() for each in chunks]
        hint = "of an fp32 tensor .float() is no copy: add with `x = x + y`, not with `+=`"
        bed.require_unchanged([each for chunks in given for each in chunks], before, "the chunks", hint)
        _require_ring(told["sent"], case)
        _require_mean(told["results"], case)
    yield passed("mean_of_ranks", "every rank returns the same mean, as exact as sums in fp32 are")
    yield passed("sent_in_fp32", "every sum travelled in fp32")
    share = f"{sent_bytes('all-reduce', 1, case.ranks)} of it on {case.ranks} ranks"
    yield passed(
        "ring", f"ranks sent to neighbours only, and on average 2 (n - 1) / n of the gradient: {share}"
    )


@dataclass(frozen=True)
class RanksCase:
    """One reduction. ``gradients`` are (ranks, elements), ``lengths`` those of the chunks."""

    name: str
    gradients: Tensor
    lengths: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks, and of chunks."""
        return len(self.lengths)

    @property
    def what(self) -> str:
        """The name of this reduction and its number of ranks, as a message names them."""
        return f"for {self.name} on {self.ranks} rank{'s' if self.ranks > 1 else ''}"

    @property
    def mean(self) -> Tensor:
        """The mean over ranks in fp64."""
        return self.gradients.double().mean(0)

    def chunks(self) -> list[list[Tensor]]:
        """Return the chunks of every rank, each time new ones."""
        return [[each.clone() for each in row.split(list(self.lengths))] for row in self.gradients]

    def off(self, result: Tensor, wanted: Tensor) -> Tensor:
        """Return how far off a result is, by the magnitudes added; inf where it is not inf that is to be."""
        off = (result.double() - wanted).abs() / self.gradients.double().abs().mean(0)
        alike = torch.where(wanted.isfinite(), result.isfinite(), result == wanted)
        return torch.where(alike, off.nan_to_num(0.0), torch.inf)

    def near(self, result: Tensor, wanted: Tensor) -> bool:
        """Whether a result is as near as sums in fp32 are: twice a rounding per addition and division.

        N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, 4.2.
        """
        return bool((self.off(result, wanted) <= 2 * (self.ranks + 1) * 2.0**-24).all())


def _cases(draw: torch.Generator) -> list[RanksCase]:
    """Draw the reductions of a check: sizes that hide nothing, one poisoned, the largest last."""

    def drawn(name: str, dtype: torch.dtype, *lengths: int, size: float = 1.0) -> RanksCase:
        shape = len(lengths), sum(lengths)
        values = torch.rand(shape, generator=draw).mul(0.5).add(0.5)  # of one sign: sums grow with each rank
        uneven = torch.rand(shape, generator=draw).mul(-3 if size == 1 else -0.1).exp()
        return RanksCase(name, (values * uneven * size).to(dtype), lengths)

    cancelling = torch.tensor([[256.0, 1.0, -256.0], [1.0, 256.0, 1.0], [-256.0, -256.0, 256.0]])
    poisoned = drawn("gradients of which one is inf", torch.float16, 3, 2, 4)
    poisoned.gradients[1, 4] = torch.inf
    return [
        drawn("fp32 gradients", torch.float32, 4, 7),
        drawn("bf16 gradients", torch.bfloat16, 3, 1, 6),
        RanksCase("256 + 1 - 256 in bf16", cancelling.bfloat16(), (1, 1, 1)),
        drawn("fp16 gradients whose sum fp16 cannot hold", torch.float16, 2, 5, 3, 1, size=6e4),
        drawn("fp32 gradients", torch.float32, 5),
        drawn("gradients with an empty chunk", torch.float32, 4, 0, 2),
        poisoned,
        drawn("fp32 gradients", torch.float32, 9, 2, 4, 1, 7),
    ]


def _require_delivered(told: dict[str, Any], case: RanksCase) -> None:
    if told["stuck"]:
        waits = ", ".join(f"rank {rank} for rank {source}" for rank, source in told["stuck"])
        said = f"the ranks would have waited for ever, {case.what}: {waits}, and nobody was left to send"
        hint = "every recv needs a send by the rank it names: send does not wait, so send first"
        bed.reject("deadlock", said, hint)
    for source, to in told["unread"]:
        said = f"rank {source} sent something that rank {to} never received, {case.what}"
        hint = "every send needs a recv: world_size - 1 of both to add up, and as many to hand the sums round"
        bed.reject("never_received", said, hint)


def _require_ring(sent: list[list[tuple[int, Tensor]]], case: RanksCase) -> None:
    """Reject messages to ranks that are no neighbours, in another dtype than fp32, or longer than needed."""
    ranks, total = case.ranks, case.gradients.shape[1] * _FP32_BYTES
    for rank, to, tensor in [(rank, *each) for rank, messages in enumerate(sent) for each in messages]:
        if to not in ((rank + 1) % ranks, (rank - 1) % ranks):
            said = f"rank {rank} sent to rank {to}, which is no neighbour of its own, {case.what}"
            hint = "send to (rank + 1) % world_size, receive from (rank - 1) % world_size"
            bed.reject("not_a_ring", said, hint)
        if tensor.dtype != torch.float32:
            said = f"{dtype_name(tensor.dtype)} was sent, {case.what}, where fp32 was asked for"
            hint = "make fp32 tensors of the chunks first, chunk.float(), and send fp32 in both passes"
            code = "sent_in_half" if tensor.dtype.itemsize < _FP32_BYTES else "sent_wider"
            bed.reject(code, said, hint)
    # with unequal chunks it depends on a rank's place which two it need not send; all ranks together do not
    most, enough = 2 * (total - min(case.lengths) * _FP32_BYTES), sent_bytes("all-reduce", total, ranks)
    nbytes = [sum(tensor.nbytes for _, tensor in messages) for messages in sent]
    if max(nbytes) > most or sum(nbytes) > ranks * enough:
        said = f"rank {nbytes.index(max(nbytes))} sent {max(nbytes)} bytes, all {sum(nbytes)}, {case.what}, "
        said += (
            f"for a gradient of {total} bytes in fp32; {float(enough):.4g} are enough on average, and {most} "
        )
        said += "for any one rank"
        hint = "send one chunk at a time: add up until each rank has the whole sum of one chunk, then "
        bed.reject("sends_too_much", said, f"{hint}hand these sums round")


def _require_mean(results: list[Any], case: RanksCase) -> None:
    """Reject results of a wrong shape or dtype, that are not the mean, or that differ between ranks."""
    for result in results:
        hint = "what arrives takes the place of its own chunk: return torch.cat(sums), in fp32"
        bed.require_tensor(result, torch.float32, case.mean.shape, case.what, hint)
    for rank, result in enumerate(results):
        if not case.near(result, case.mean):
            _reject_mean(result, rank, case)
    for rank, result in enumerate(results):
        if not torch.equal(result.nan_to_num(7.0), results[0].nan_to_num(7.0)):
            said = f"rank {rank} returned another mean than rank 0, {case.what}, by the last bit perhaps: "
            hint = "let one rank add up each chunk, all others take its sum as it is, and all divide alike"
            bed.reject("results_differ", f"{said}their weights would drift apart", hint)


def _reject_mean(result: Tensor, rank: int, case: RanksCase) -> NoReturn:
    """Say where a result is farthest off, and by how much."""
    off = case.off(result, case.mean)
    n = int(off.argmax())
    said = f"{case.what}: at index {n} rank {rank} returned {float(result[n]):.7g}, not "
    said += f"{float(case.mean[n]):.7g}"
    if off[n].isfinite():
        said += f": off by {float(off[n]):.2g} of the magnitudes that were added"
    hint = "make fp32 tensors of the chunks before anything is added or divided; each chunk meets every rank "
    hint += "once before its sum is handed round, and is divided once: write down for three ranks who holds "
    bed.reject("wrong_mean", f"the mean is wrong, {said}", f"{hint}what after each hop")
