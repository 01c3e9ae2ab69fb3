"""Does the mean come out, in fp32, and is it really a ring: who sends what to whom, in which dtype?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import require_none
from amp_lessons.course.exercises.bed import described, function
from amp_lessons.course.exercises.reduce_mean.scenarios import Scenario, scenarios
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.parallel import sent_bytes

_ON_RANKS = "amp_lessons.course.exercises.reduce_mean.network_there:on_ranks"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Reduce gradients over several numbers of ranks, on a simulated network that records every message."""
    reduce_mean = function(worker, "reduce_mean", [], 0, 1, None, None)
    for scenario in scenarios(draw):
        given = scenario.chunks()
        told, _ = reduce_mean.called_by(_ON_RANKS, given, about=scenario.what)
        require_none(of_network(told, scenario))
        require_none(of_inputs(given, scenario))
        require_none(of_traffic(told["sent"], scenario))
        require_none(of_results(told["results"], scenario))
    yield from _what_holds(scenario)


def _what_holds(last: Scenario) -> Iterator[Finding]:
    yield passed("mean_of_ranks", "every rank returns the same mean, as exact as sums in fp32 are")
    yield passed("sent_in_fp32", "every sum travelled in fp32")
    share = sent_bytes("all-reduce", 1, last.ranks)
    yield passed(
        "ring",
        f"ranks talked to their neighbours only, and sent 2 (n - 1) / n of the gradient: {share} of it on "
        f"{last.ranks} ranks",
    )


# --- mistakes in a ring: what the network saw, and what the numbers say

_FP32_BYTES = 4


def of_network(told: dict[str, Any], scenario: Scenario) -> Iterator[Finding]:
    """Find ranks that were stopped, or waited forever, and messages that were never received."""
    if told["faults"]:
        rank = min(told["faults"])
        code, seen = told["faults"][rank]
        yield _fault(code, seen, rank, scenario.ranks)
    if told["stuck"]:
        waits = ", ".join(f"rank {rank} for rank {source}" for rank, source in told["stuck"])
        yield failed(
            "deadlock",
            f"the ranks would have waited for ever, {scenario.what}: {waits}, and nobody was left to send",
            "every recv needs a send by the rank it names: send does not wait, so send first and receive "
            "then, on every rank as often",
        )
    if told["unread"]:
        source, to = told["unread"][0]
        yield failed(
            "never_received",
            f"rank {source} sent something that rank {to} never received, {scenario.what}: the next to "
            "receive would get it in place of its own",
            "every send needs a recv: world_size - 1 of both to add up, and as many to hand the sums round",
        )


def _fault(code: str, seen: Any, rank: int, ranks: int) -> Finding:
    """Report what a rank was stopped at."""
    message, hint = {
        "sends_no_tensor": (f"send was given {seen}", "write send(tensor, to), the tensor first"),
        "no_such_rank": (
            f"rank {rank} of {ranks} was to send to, or receive from, {seen}",
            "ranks are ints from 0 to world_size - 1, and none talks to itself: take the neighbour modulo "
            "world_size, and with a single rank send nothing",
        ),
        "sends_without_end": (
            f"one rank had sent {seen} tensors and went on",
            "2 (world_size - 1) will do",
        ),
    }[code]
    return failed(code, message, hint)


def of_inputs(given: list[list[Tensor]], scenario: Scenario) -> Iterator[Finding]:
    """Find input chunks that the function has changed."""
    for chunks, before in zip(given, scenario.chunks(), strict=True):
        if len(chunks) != len(before) or not all(map(_same, chunks, before)):
            yield common_findings.inputs_changed(
                "the chunks",
                "of an fp32 tensor .float() is no copy: add with `x = x + y`, not with `+=`, and leave the "
                "list as it is",
            )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


Sent = list[list[tuple[int, Tensor]]]  # by each rank: to whom, and what


def of_traffic(sent: Sent, scenario: Scenario) -> Iterator[Finding]:
    """Find messages to ranks that are no neighbours, in another dtype than fp32, or longer than needed."""
    yield from _strangers(sent, scenario)
    yield from _other_dtypes(sent, scenario)
    total, ranks = scenario.gradients.shape[1] * _FP32_BYTES, scenario.ranks
    # with unequal chunks it depends on a rank's place which two it need not send; all ranks together do not
    most = 2 * (total - min(scenario.lengths) * _FP32_BYTES)
    nbytes = [sum(tensor.nbytes for _, tensor in messages) for messages in sent]
    for rank, sent_by_it in enumerate(nbytes):
        if sent_by_it > most:
            yield _too_much(f"rank {rank} sent {sent_by_it} bytes", total, scenario)
    if sum(nbytes) > ranks * sent_bytes("all-reduce", total, ranks):
        yield _too_much(f"each rank sent {sum(nbytes) / ranks:.4g} bytes on average", total, scenario)


def _strangers(sent: Sent, scenario: Scenario) -> Iterator[Finding]:
    for rank, messages in enumerate(sent):
        neighbours = {(rank + 1) % scenario.ranks, (rank - 1) % scenario.ranks}
        for to, _ in messages:
            if to not in neighbours:
                yield failed(
                    "not_a_ring",
                    f"rank {rank} sent to rank {to}, which is no neighbour of its own, {scenario.what}: in a "
                    "ring every rank talks to the next, so that no link carries more than another",
                    "send to (rank + 1) % world_size, receive from (rank - 1) % world_size",
                )


def _other_dtypes(sent: Sent, scenario: Scenario) -> Iterator[Finding]:
    for dtype in [tensor.dtype for messages in sent for _, tensor in messages]:
        if dtype != torch.float32 and dtype.itemsize < _FP32_BYTES:
            yield failed(
                "sent_in_half",
                f"sums travelled in {dtype_name(dtype)}, {scenario.what}: each hop rounds what the ranks "
                "before it have added up, and the error grows with the number of ranks",
                "make fp32 tensors of the chunks first, chunk.float(), and send those",
            )
        elif dtype != torch.float32:
            yield failed(
                "sent_wider",
                f"tensors of {dtype} were sent, {scenario.what}: fp32 was asked for, and twice the bytes "
                "take twice the time",
                "add up in fp32: chunk.float()",
            )


def _too_much(seen: str, total: int, scenario: Scenario) -> Finding:
    least = sent_bytes("all-reduce", total, scenario.ranks)
    return failed(
        "sends_too_much",
        f"{seen}, {scenario.what}, for a gradient of {total} bytes in fp32; 2 (n - 1) / n of it, "
        f"{float(least):.4g}, are enough",
        "send one chunk at a time: first add up, so that each rank has the whole sum of one chunk, then hand "
        "these sums round",
    )


def of_results(results: list[Any], scenario: Scenario) -> Iterator[Finding]:
    """Find results of a wrong shape or dtype, that are not the mean, or that differ between ranks."""
    for result in results:
        yield from _no_vector(result, scenario)
    for rank, result in enumerate(results):
        if not _close(result, scenario.mean, scenario):
            yield _explained(result, rank, scenario)
    for rank, result in enumerate(results):
        if not torch.equal(result.nan_to_num(7.0), results[0].nan_to_num(7.0)):
            yield failed(
                "results_differ",
                f"rank {rank} returned another mean than rank 0, {scenario.what}, if only by the last bit: "
                "their weights would drift apart, and nothing would bring them together",
                "let one rank add up each chunk, and all others take its sum as it is",
            )


def _no_vector(result: Any, scenario: Scenario) -> Iterator[Finding]:
    elements = scenario.gradients.shape[1]
    right = isinstance(result, Tensor) and result.dtype == torch.float32 and result.shape == (elements,)
    if not right:
        yield common_findings.wrong_return_type(
            f"an fp32 tensor of shape ({elements},) was",
            f"{described(result)}, {scenario.what}",
            "a sum that arrives takes the place of its own chunk; join them in their order, torch.cat(sums), "
            "and leave them in fp32",
        )


def _close(result: Tensor, wanted: Tensor, scenario: Scenario) -> bool:
    """Whether a result is as near as sums in fp32 are; inf where inf is wanted."""
    finite = wanted.isfinite()
    near = (result.double() - wanted).abs()[finite] <= scenario.tolerance[finite]
    return bool(near.all()) and torch.equal(result.isfinite(), finite)


def _explained(result: Tensor, rank: int, scenario: Scenario) -> Finding:
    who, wanted = f"rank {rank}, {scenario.what}", scenario.mean
    if _close(result, wanted * scenario.ranks, scenario):
        return failed(
            "not_divided",
            f"the sum was returned, not the mean, by {who}: the step would be {scenario.ranks} times as long",
            "divide by world_size, once",
        )
    if _close(result, wanted / scenario.ranks, scenario):
        return failed(
            "mean_divided_twice",
            f"the mean was divided by the number of ranks once more, by {who}",
            "divide once: before anything is sent, or after everything is received",
        )
    if not torch.equal(result.isfinite(), wanted.isfinite()):
        return failed(
            "not_finite_elsewhere",
            f"inf and NaN are not where an inf on one rank puts them, in the result of {who}: the scaler of "
            "every rank looks for them there, to skip the same step",
            "add inf as any other number, and touch nothing else: no nan_to_num, and no product with 0",
        )
    if _close(result.sort().values, wanted.sort().values, scenario):
        return failed(
            "chunks_out_of_order",
            f"the means are right and in the wrong places, in the result of {who}",
            "a chunk keeps its place in the list while it goes round: return torch.cat(sums) in their order",
        )
    return _wrong_mean(result, who, scenario)


def _wrong_mean(result: Tensor, who: str, scenario: Scenario) -> Finding:
    """Report whether a wrong mean comes from rounding or from a sum that lacks terms."""
    magnitude = scenario.gradients.double().abs().mean(0)
    share = float(((result.double() - scenario.mean).abs() / magnitude).nan_to_num(0.0).max())
    dtype = scenario.gradients.dtype
    if dtype != torch.float32 and share < 2 * scenario.ranks * torch.finfo(dtype).eps:
        return failed(
            "summed_in_half",
            f"the mean is off by up to {share:.2g} of the magnitudes that were added, by {who}: as far as "
            f"{dtype_name(dtype)} rounds, where fp32 would be off by 1e-7",
            "make fp32 tensors of the chunks before anything is added or divided, and send those",
        )
    chunks = zip(
        result.split(list(scenario.lengths)), scenario.mean.split(list(scenario.lengths)), strict=True
    )
    wrong = [i for i, (got, mean) in enumerate(chunks) if not torch.allclose(got.double(), mean, rtol=1e-3)]
    listed = ", ".join(map(str, wrong)) or "none by more than 0.1 %"
    return failed(
        "wrong_mean",
        f"chunks that are wrong in the result of {who}: {listed}",
        "each chunk must have met every rank once before its sum is handed round: write down for three "
        "ranks who holds what after each hop",
    )
