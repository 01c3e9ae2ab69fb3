"""Training on two real processes: do the ranks stay one model, and is every sample worth the same?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import loops, ranks
from amp_lessons.course.exercises.attempt import require_none
from amp_lessons.course.exercises.bed import as_raised, described, function
from amp_lessons.course.exercises.ddp_step import rank_there
from amp_lessons.course.exercises.loop_runs import Problem, Run, Window
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_STEPS = 2
# as many batches on both ranks, of other sizes: 27 samples and 20; the last window of an epoch is shorter
_SIZES = ((8, 3, 5, 9, 2), (2, 6, 4, 3, 5))


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Train on several problems, each rank with data and first weights of its own."""
    function(worker, "ddp_train", *[None] * 5, accumulation_steps=None, dtype=None)
    problems = _problems(int(torch.randint(2**30, (), generator=draw)))
    given = [[each.given(("accumulation_steps",), {}) for each in of_ranks] for of_ranks in problems]
    seen = ranks.run(worker, f"{rank_there.__name__}:train", given)
    first, *_ = seen
    if first["left"] is not None:  # its loop has raised, and the others' only because of that
        last = first["told"][-1]
        require_none(of_one_rank(Run(problems[len(first["told"]) - 1][first["rank"]], last)))
    for number, of_ranks in enumerate(problems):
        runs = [Run(problem, each["told"][number]) for problem, each in zip(of_ranks, seen, strict=True)]
        for run in runs:
            require_none(of_one_rank(run))
        require_none(of_beginnings(runs))
        require_none(of_reductions(runs))
        require_none(of_updates(runs, of_ranks))
        if not any(problem.poisoned for problem in of_ranks):
            require_none(of_histories(runs, of_ranks[0]))
    yield from _what_holds()


def _problems(shift: int) -> tuple[tuple[Problem, ...], ...]:
    """Return each problem as the ranks get it: seeds differ, so weights and data do."""
    tiny = _problem(shift, torch.float16, loss_weight=2.0**-18)  # without a scale nothing is left of it
    bfloat16 = _problem(shift + 200, torch.bfloat16)
    # one rank's first batch of the second window overflows: gradients that are not sent on their own
    poisoned = _problem(shift + 400, torch.float16, poisoned=((2, 1e6),))
    return tiny, bfloat16, poisoned


def _problem(
    shift: int, dtype: torch.dtype, loss_weight: float = 2.0**-5, poisoned: tuple[tuple[int, float], ...] = ()
) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            seed=100 * rank,
            dtype=dtype,
            batch_sizes=sizes,
            loss_weight=loss_weight,
            poisoned=poisoned if rank == 1 else (),
            accumulation_steps=_STEPS,
        ).drawn_anew(shift)
        for rank, sizes in enumerate(_SIZES)
    )


def _what_holds() -> Iterator[Finding]:
    yield passed(
        "weights_shared", "both ranks had the same weights, bit for bit, before and after every step"
    )
    yield passed("one_reduction", "gradients were sent once per window, in fp32")
    yield passed("updates_of_all", "every update is plain SGD on the mean over all samples of all ranks")
    yield passed("skipped_together", "where one rank overflowed, both skipped the step and lowered the scale")
    yield passed("history_of_all", "the history holds the mean loss over the samples of both ranks")


# --- mistakes that one rank alone can tell


def of_one_rank(run: Run) -> Iterator[Finding]:
    """Find what no loop may do, another dtype than asked for, a loss not scaled, and batches left out."""
    yield from chain(_no_update(run), loops.conduct(run, ""), loops.precision(run))
    yield from loops.not_scaled(run, most=max(run.problem.batch_sizes))
    wanted = list(range(len(run.problem.batch_sizes))) * run.problem.epochs
    if run.order != wanted:
        yield failed(
            "other_batches",
            f"a rank computed {len(run.seen)} losses in {run.problem.epochs} epochs of "
            f"{len(run.problem.batch_sizes)} batches, or took the batches in another order than its loader's",
            "go through the loader once per epoch, on every rank; the last window may be shorter",
        )


def _no_update(run: Run) -> Iterator[Finding]:
    """Find a scaler that refused a window because nobody had told it that the one before had ended."""
    text = as_raised(run.told["raised"]).text if run.told["raised"] else ""
    last = run.seen[-1:]
    twice = any(len(entry.called(name, directly=True)) > 1 for entry in last for name in _ONCE)
    if "already been called" in text and "since the last update" in text and not twice:
        yield catalogue.scaler.no_update(
            "call scaler.update() once per window, after scaler.step(optimizer): not for every batch, for "
            "all gradients of a window need one scale",
            "a window",
        )


_ONCE = ("scaler.step", "unscale_")

# --- mistakes that show only beside the other rank

_TOLERANCE = {torch.float16: 0.02, torch.bfloat16: 0.03}  # of the gradient's norm: what forward rounds
_CLOSE = 2e-3  # of a mean loss
_WITHOUT_SCALER = (
    "scaler.step asks whether all gradients are finite, and skips if not; without a scaler that is yours to "
    "do: on every rank, of the gradients that are reduced already, before optimizer.step()"
)


def of_beginnings(runs: list[Run]) -> Iterator[Finding]:
    """Compare the weights that the ranks began with, with each other and with rank 0's."""
    first_windows = [run.windows[0] for run in runs]
    if not _same([window.before for window in first_windows]):
        yield failed(
            "ranks_start_apart",
            "the ranks began with different weights: each has drawn its own, and nothing gave them the same",
            "wrap the model, DistributedDataParallel(model), which hands out rank 0's weights, before the "
            "first forward pass",
        )
    if not torch.equal(first_windows[0].before, runs[0].start):
        yield failed(
            "not_rank_zeros_weights",
            "all ranks began with the same weights, but not with those that rank 0 was given",
            "let rank 0 hand out its own: DistributedDataParallel(model), or "
            "dist.broadcast(parameter.data, src=0) for each parameter",
        )


def of_reductions(runs: list[Run]) -> Iterator[Finding]:
    """Find gradients reduced in 16 bits, or for every batch; tensors of up to four elements are ignored."""
    for run in runs:
        large = [(dtype, elements) for dtype, elements in run.told["reductions"] if elements > 4]
        for dtype, _ in large:
            if dtype.itemsize < torch.float32.itemsize:
                yield failed(
                    "reduced_in_half",
                    f"gradients were sent and added up in {dtype_name(dtype)}, which rounds the sum",
                    "leave the gradients in fp32, as autocast leaves them; compress only what has to be",
                )
        sent = sum(elements for _, elements in large) / run.start.numel()
        if sent >= len(run.windows) + 1:
            yield failed(
                "reduced_every_batch",
                f"as many numbers as there are gradients were sent {sent:.3g} times for "
                f"{len(run.windows)} steps: the network carries more than it needs",
                "for all batches of a window but the last one, run forward and backward inside with "
                "ddp.no_sync(): (the forward pass too: it is what tells DDP whether to send)",
            )


def of_updates(runs: list[Run], problems: tuple[Problem, ...]) -> Iterator[Finding]:
    """Compare the ranks, window by window, then the update with the one wanted; at last ask the scalers."""
    left = torch.zeros_like(runs[0].start)  # what the window before had applied
    for number, of_ranks in enumerate(zip(*(run.windows for run in runs), strict=True), start=1):
        yield from _scales_apart(number, of_ranks)
        if any(window.overflowed for window in of_ranks) or _poisoned(number, problems):
            yield from _at_overflow(of_ranks)
        else:
            yield from _apart_after(number, of_ranks)
            yield from _wrong_update(number, of_ranks, problems[0], left)
        left = of_ranks[0].applied
    for run in sorted(runs, key=lambda run: not any(window.overflowed for window in run.windows)):
        if all(window.scale > 1.0 for window in run.windows):  # of a scale kept by hand the updates tell
            yield from loops.scale_after_overflow(run.windows)


def _poisoned(number: int, problems: tuple[Problem, ...]) -> bool:
    """Whether a batch of this window was made to overflow on any rank."""
    steps = problems[0].accumulation_steps
    per_epoch = math.ceil(len(problems[0].batch_sizes) / steps)
    at = (number - 1) % per_epoch
    return any(index // steps == at for problem in problems for index, _ in problem.poisoned)


def _scales_apart(number: int, of_ranks: tuple[Window, ...]) -> Iterator[Finding]:
    if not _same([torch.tensor(window.scale) for window in of_ranks]):
        scales = " and ".join(f"{window.scale:g}" for window in of_ranks)
        yield catalogue.ranks.scales_apart(
            f"the ranks went into window {number} with different loss scales, {scales}"
        )


def _apart_after(number: int, of_ranks: tuple[Window, ...]) -> Iterator[Finding]:
    if not _same([window.after for window in of_ranks]):
        yield catalogue.ranks.weights_apart(f"after window {number} the ranks had different weights")


def _at_overflow(of_ranks: tuple[Window, ...]) -> Iterator[Finding]:
    moved = [not torch.equal(window.before, window.after) for window in of_ranks]
    by_scaler = any(window.called("scaler.step") for window in of_ranks)
    if moved == [False] * len(moved):
        return
    if all(moved):
        yield failed(
            "overflow_stepped_on",
            "one rank's gradients overflowed, and both ranks made the step",
            "let scaler.step look at the gradients after they were reduced: inf on one is inf in the sum"
            if by_scaler
            else _WITHOUT_SCALER,
        )
    stepped = moved.index(True)
    who = f"gradients overflowed on one rank, and rank {stepped} made the step that the other skipped"
    apart = catalogue.ranks.skipped_apart(who)
    yield apart if by_scaler else replace(apart, hint=_WITHOUT_SCALER)


def _sizes(window: Window) -> list[int]:
    return [window.problem.batch_sizes[batch] for batch in window.batches if batch is not None]


def _summed(window: Window) -> Tensor:
    """Return the true gradient of the sum over this rank's samples."""
    pairs = zip(_sizes(window), window.truths, strict=True)
    return torch.stack([size * gradient for size, (_, gradient) in pairs]).sum(0)


def _wrong_update(
    number: int, of_ranks: tuple[Window, ...], problem: Problem, left: Tensor
) -> Iterator[Finding]:
    applied = of_ranks[0].applied
    samples, batches = [sum(_sizes(window)) for window in of_ranks], sum(len(w.places) for w in of_ranks)
    summed = [_summed(window) for window in of_ranks]
    wanted = torch.stack(summed).sum(0) / sum(samples)
    if _near(applied, wanted, problem):
        return
    of_means = torch.stack([g for window in of_ranks for _, g in window.truths]).sum(0) / batches
    # a short window may have been divided by the length of a full one
    full = of_means * batches / (problem.accumulation_steps * len(of_ranks))
    if _near(applied, of_means, problem) or _near(applied, full, problem):
        yield failed(
            "mean_of_means",
            f"the update of window {number} is the mean of the batches' means: a sample of a small batch "
            "weighs more than one of a large batch",
            "weight each loss by its number of samples, and divide by how many all ranks have in this window",
        )
    of_means = torch.stack([each / count for each, count in zip(summed, samples, strict=True)])
    if any(_near(applied, means, problem) for means in (of_means.mean(0), of_means.sum(0))):
        yield failed(
            "mean_of_means",
            f"the update of window {number} is made of each rank's own mean: a sample of a rank that has few "
            "in this window weighs more than one of a rank that has many",
            "all_reduce the number of samples before you divide by it",
        )
    if left.any() and _near(applied - wanted, left, problem):
        yield catalogue.steps.no_zero_grad()
    factor = float(applied @ wanted / (wanted @ wanted))
    off = float((applied - factor * wanted).norm() / max(abs(factor) * float(wanted.norm()), 1e-30))
    by_scaler = any(window.called("scaler.step") for window in of_ranks)
    unscales = "scaler.step by the loss scale" if by_scaler else "and nobody but you by a loss scale"
    seen = f"{factor:.4g} times the right one" if off < 0.1 else "off in direction"
    yield failed(
        "wrong_update_of_all",
        f"the update of window {number} is not the gradient of the mean loss over all samples of both ranks: "
        f"it is {seen}",
        f"DDP divides the sum over ranks by their number, {unscales}; what is left to you is each batch's "
        "share of all the samples in its window",
    )


def _near(applied: Tensor, wanted: Tensor, problem: Problem) -> bool:
    return bool((applied - wanted).norm() <= _TOLERANCE[problem.dtype] * wanted.norm())


def _same(tensors: list[Tensor]) -> bool:
    return all(torch.equal(tensor.nan_to_num(7.0), tensors[0].nan_to_num(7.0)) for tensor in tensors)


def of_histories(runs: list[Run], problem: Problem) -> Iterator[Finding]:
    """Compare what the ranks returned with the mean over all samples."""
    for run in runs:
        yield from _no_list_of_floats(run.told["returned"][0], problem.epochs)
    wanted = _means([_losses(run) for run in runs], problem.epochs)
    for run in runs:
        history = run.told["returned"][0]
        if not all(math.isclose(a, b, rel_tol=_CLOSE) for a, b in zip(history, wanted, strict=True)):
            own = _means([_losses(run)], problem.epochs)
            alone = all(math.isclose(a, b, rel_tol=_CLOSE) for a, b in zip(history, own, strict=True))
            what = "this rank's own mean loss" if alone else "something else than the mean loss"
            yield failed(
                "history_not_of_all",
                f"the history holds {what}: {history[0]:.5g} instead of {wanted[0]:.5g}, the mean "
                "over all samples of both ranks",
                "add up losses times samples, and samples, on every rank; all_reduce both at the end of an "
                "epoch, and divide",
            )


def _no_list_of_floats(history: Any, epochs: int) -> Iterator[Finding]:
    right = isinstance(history, list) and all(isinstance(each, float) for each in history)
    if not right or len(history) != epochs:
        yield common_findings.wrong_return_type(
            f"a list of {epochs} floats was",
            described(history),
            "append one .item() per epoch, and return it",
        )


def _losses(run: Run) -> list[tuple[float, int]]:
    """Return the loss of every batch, in order, and its number of samples."""
    sizes = [size for window in run.windows for size in _sizes(window)]
    return [(entry.loss, size) for entry, size in zip(run.seen, sizes, strict=True)]


def _means(losses: list[list[tuple[float, int]]], epochs: int) -> list[float]:
    means = []
    for epoch in range(epochs):
        per_epoch = [each[len(each) * epoch // epochs : len(each) * (epoch + 1) // epochs] for each in losses]
        pairs = [pair for of_rank in per_epoch for pair in of_rank]
        means.append(sum(loss * size for loss, size in pairs) / sum(size for _, size in pairs))
    return means
