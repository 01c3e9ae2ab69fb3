"""Training on two real processes: do the ranks stay one model, and is every sample worth the same?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed, loops, ranks
from amp_lessons.course.exercises.ddp_step import rank_there
from amp_lessons.course.exercises.loop_runs import Problem, Run, Window
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCE = {torch.float16: 0.02, torch.bfloat16: 0.03}  # of the gradient's norm: what forward rounds
_CLOSE = 2e-3  # of a mean loss
# as many batches on both ranks, of other sizes: 27 samples and 20; the last window of an epoch is shorter
_SIZES = ((8, 3, 5, 9, 2), (2, 6, 4, 3, 5))
_TINY = Problem(seed=0, dtype=torch.float16, loss_weight=2.0**-18, accumulation_steps=2)  # without a scale: 0
_BFLOAT16 = Problem(seed=0, dtype=torch.bfloat16, accumulation_steps=2)
# one rank's first batch of the second window overflows: gradients that are not sent on their own
_POISONED = replace(_BFLOAT16, dtype=torch.float16, poisoned=((2, 1e6),))
_PROBLEMS = _TINY, _BFLOAT16, _POISONED
_ONCE = "scaler.step", "unscale_"  # per window


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Train on several problems, each rank with data and first weights of its own."""
    bed.function(worker, "ddp_train", *[None] * 5, accumulation_steps=None, dtype=None)
    shift = int(torch.randint(2**30, (), generator=draw))
    problems = [_of_ranks(each, shift + 200 * number) for number, each in enumerate(_PROBLEMS)]
    given = [[each.given(("accumulation_steps",), {}) for each in of_ranks] for of_ranks in problems]
    seen = ranks.run(worker, f"{rank_there.__name__}:train", given)
    first, *_ = seen
    if first["left"] is not None:  # its loop has raised, and the others' only because of that
        last = first["told"][-1]
        bed.require_none(_of_one_rank(Run(problems[len(first["told"]) - 1][first["rank"]], last)))
    for number, of_ranks in enumerate(problems):
        runs = [Run(problem, each["told"][number]) for problem, each in zip(of_ranks, seen, strict=True)]
        for run in runs:
            bed.require_none(_of_one_rank(run))
        bed.require_none(_together(runs))
    yield passed("weights_shared", "both ranks had the same weights, bit for bit, before and after each step")
    yield passed("one_reduction", "gradients were sent once per window, in fp32")
    yield passed("updates_of_all", "every update is plain SGD on the mean over all samples of all ranks")
    yield passed("skipped_together", "where one rank overflowed, both skipped the step and lowered the scale")
    yield passed("history_of_all", "the history holds the mean loss over the samples of both ranks")


def _of_ranks(problem: Problem, shift: int) -> list[Problem]:
    """Return a problem as the ranks get it: other weights, data and sizes; only rank 1 is poisoned."""
    rank_0 = replace(problem, seed=0, batch_sizes=_SIZES[0], poisoned=())
    rank_1 = replace(problem, seed=100, batch_sizes=_SIZES[1])
    return [rank_0.drawn_anew(shift), rank_1.drawn_anew(shift)]


def _of_one_rank(run: Run) -> Iterator[Finding]:
    """Find what no loop may do, another dtype than asked for, a loss not scaled, and batches left out."""
    text = bed.as_raised(run.told["raised"]).text if run.told["raised"] else ""
    last = [entry.called(each, directly=True) for entry in run.seen[-1:] for each in _ONCE]
    twice = any(len(calls) > 1 for calls in last)
    if "already been called" in text and "since the last update" in text and not twice:
        hint = "call scaler.update() once per window, after scaler.step(optimizer): one scale for all of it"
        yield rules.scaler.no_update(hint, "a window")
    yield from chain(loops.conduct(run, ""), loops.precision(run))
    yield from loops.not_scaled(run, most=max(run.problem.batch_sizes))
    epochs, batches = run.problem.epochs, len(run.problem.batch_sizes)
    if run.order != list(range(batches)) * epochs:
        said = "a rank took the batches in another order than its loader's"
        if len(run.seen) != epochs * batches:
            said = f"a rank trained on {len(run.seen)} batches, in {epochs} epochs of {batches}"
        hint = "go through the loader once per epoch, on every rank; the last window may be shorter"
        yield failed("other_batches", said, hint)


# --- mistakes that show only beside the other rank


def _together(runs: list[Run]) -> Iterator[Finding]:
    """Compare weights, what was sent, scales, updates and histories, with each other and with the truth."""
    begun = [run.windows[0].before for run in runs]
    if not _same(begun):
        said = "the ranks began with different weights: each drew its own, and nothing gave them the same"
        hint = "wrap the model before the first forward pass: DistributedDataParallel hands rank 0's out"
        yield failed("ranks_start_apart", said, hint)
    if not torch.equal(begun[0], runs[0].start):
        said = "all ranks began with the same weights, but not with those that rank 0 was given"
        hint = "DistributedDataParallel(model), or dist.broadcast(parameter.data, src=0) for each parameter"
        yield failed("not_rank_zeros_weights", said, hint)
    for run in runs:
        yield from _reductions(run)
    left = torch.zeros_like(begun[0])  # what the window before had applied
    for number, of_ranks in enumerate(zip(*(run.windows for run in runs), strict=True), start=1):
        if not _same([torch.tensor(window.scale) for window in of_ranks]):
            scales = " and ".join(f"{window.scale:g}" for window in of_ranks)
            said = f"the ranks went into window {number} with different loss scales, {scales}"
            yield rules.ranks.scales_apart(said)
        if any(window.overflowed or window.poisoned for window in of_ranks):
            yield from _at_overflow(of_ranks)
        else:
            if not _same([window.after for window in of_ranks]):
                yield rules.ranks.weights_apart(f"after window {number} the ranks had different weights")
            yield from _wrong_update(number, of_ranks, left)
        left = of_ranks[0].applied
    for run in sorted(runs, key=lambda run: not any(window.overflowed for window in run.windows)):
        if all(window.scale > 1.0 for window in run.windows):  # of a scale kept by hand the updates tell
            yield from loops.scale_after_overflow(run.windows)
    if not any(run.problem.poisoned for run in runs):
        yield from _histories(runs)


def _same(tensors: list[Tensor]) -> bool:
    return all(torch.equal(tensor.nan_to_num(7.0), tensors[0].nan_to_num(7.0)) for tensor in tensors)


def _reductions(run: Run) -> Iterator[Finding]:
    """Find gradients reduced in 16 bits, or for every batch; tensors of up to four elements are ignored."""
    large = [(dtype, elements) for dtype, elements in run.told["reductions"] if elements > 4]
    for dtype, _ in large:
        if dtype.itemsize < torch.float32.itemsize:
            said = f"gradients were sent and added up in {dtype_name(dtype)}, which rounds the sum"
            hint = "leave the gradients in fp32, as autocast leaves them; compress only what has to be"
            yield failed("reduced_in_half", said, hint)
    sent = sum(elements for _, elements in large) / run.start.numel()
    if sent >= len(run.windows) + 1:
        said = f"as many numbers as there are gradients were sent {sent:.3g} times for {len(run.windows)} "
        hint = (
            "send once per window, with its last batch; with DDP, ddp.no_sync(): around forward and backward "
        )
        hint += "of all others keeps it from sending"
        yield failed("reduced_every_batch", f"{said}steps: the network carries more than it needs", hint)


def _at_overflow(of_ranks: tuple[Window, ...]) -> Iterator[Finding]:
    moved = [not torch.equal(window.before, window.after) for window in of_ranks]
    if all(moved):
        said = "one rank's gradients overflowed, and the weights of both ranks changed all the same"
        hint = "let scaler.step look at the gradients after they were reduced: inf on one is inf in the sum; "
        hint += "without a scaler ask on every rank, before optimizer.step(), whether they are finite"
        if any(window.left_out for window in of_ranks):
            said = "one rank left out a batch whose loss was not finite, and both ranks made the step"
            hint = "let it go backward, on every rank: inf on one is inf in the sum, and scaler.step sees it"
        yield failed("overflow_stepped_on", said, hint)
    if any(moved):
        said = f"gradients overflowed on one rank, and rank {moved.index(True)} made the step that the other "
        yield rules.ranks.skipped_apart(f"{said}skipped")


def _wrong_update(number: int, of_ranks: tuple[Window, ...], left: Tensor) -> Iterator[Finding]:
    """Hold an update against the true gradient, and against its sum with the update before it."""
    applied, problem = of_ranks[0].applied.double(), of_ranks[0].problem
    sizes = [torch.tensor(window.problem.batch_sizes)[window.batches].double() for window in of_ranks]
    truths = [torch.stack([gradient for _, gradient in window.truths]) for window in of_ranks]
    summed = torch.stack([size @ truth.double() for size, truth in zip(sizes, truths, strict=True)]).sum(0)
    wanted = summed / torch.cat(sizes).sum()

    def near(other: Tensor) -> bool:
        return bool((applied - other).norm() <= _TOLERANCE[problem.dtype] * other.norm())

    if near(wanted):
        return
    if near(wanted + left):
        yield rules.steps.no_zero_grad()
    factor = float(applied @ wanted / (wanted @ wanted))
    off = float((applied - factor * wanted).norm() / applied.norm().clamp(min=1e-30))
    said = f"the update of window {number} is not the gradient of the mean loss over all samples of all "
    said += f"ranks: it is {factor:.4g} times the right one"
    said += f", and {off:.0%} off in direction" if of_ranks[0].moved else ""
    hint = "weight each loss by its samples, over those of all ranks in its window (all_reduce them); "
    hint += "DDP divides the sum over ranks by the number of ranks, and scaler.step, or you, by the scale"
    yield failed("wrong_update_of_all", said, hint)


def _histories(runs: list[Run]) -> Iterator[Finding]:
    """Compare what the ranks returned with the mean over all samples."""
    epochs, sizes = runs[0].problem.epochs, torch.tensor([run.problem.batch_sizes for run in runs]).double()
    losses = torch.tensor([[entry.loss for entry in run.seen] for run in runs]).double()
    sums = (losses.reshape(len(runs), epochs, -1) * sizes[:, None]).sum(-1)  # of ranks, epochs
    wanted = sums.sum(0) / sizes.sum()
    for run, own in zip(runs, sums / sizes.sum(1, keepdim=True), strict=True):
        history = run.told["returned"][0]
        floats = isinstance(history, list) and all(isinstance(each, float) for each in history)
        if not floats or len(history) != epochs:
            expected, hint = f"a list of {epochs} floats was", "append one .item() per epoch, and return it"
            yield common_findings.wrong_return_type(expected, bed.described(history), hint)
        seen = torch.tensor(history).double()
        if not torch.allclose(seen, wanted, rtol=_CLOSE, atol=0.0):
            worst = int(((seen - wanted).abs() / wanted).nan_to_num(torch.inf).argmax())
            alone = torch.allclose(seen, own, rtol=_CLOSE, atol=0.0)
            what = "this rank's own mean loss" if alone else "something else than the mean loss"
            said = f"the history holds {what}: {seen[worst]:.5g} instead of {wanted[worst]:.5g}, the mean "
            hint = "add up losses times samples, and samples; all_reduce both after an epoch, and divide"
            yield failed("history_not_of_all", f"{said}over all samples of both ranks", hint)
