"""Training on two real processes: do the ranks stay one model, and is every sample worth the same?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises import ranks
from amp_lessons.exercises.attempt import Attempt, require_none
from amp_lessons.exercises.ddp_step import mistakes, on_ranks
from amp_lessons.exercises.training_loops.testbed import Problem

_STEPS = 2
# as many batches on both ranks, of other sizes: 27 samples and 20; the last window of an epoch is shorter
_SIZES = ((8, 3, 5, 9, 2), (2, 6, 4, 3, 5))


def check(attempt: Attempt) -> Iterator[Finding]:
    """Train on several problems, each rank with data and first weights of its own."""
    loop = attempt.function(*[None] * 5, accumulation_steps=None, dtype=None).function
    problems = _problems()
    seen = ranks.run(on_ranks.train, loop, problems)
    for of_ranks, *runs in zip(problems, *seen, strict=True):
        require_none(mistakes.of_reductions(runs))
        require_none(mistakes.of_updates(runs, of_ranks))
        if not any(problem.poisoned for problem in of_ranks):
            require_none(mistakes.of_histories(runs, of_ranks[0]))
    yield from _what_holds()


def _problems() -> tuple[tuple[Problem, ...], ...]:
    """Return each problem as the ranks get it: seeds differ, so weights and data do."""
    tiny = _problem(0, torch.float16, loss_weight=2.0**-18)  # without a loss scale nothing is left of it
    bfloat16 = _problem(2, torch.bfloat16)
    # one rank's first batch of the second window overflows: gradients that are not sent on their own
    poisoned = _problem(4, torch.float16, poisoned=((2, 1e6),))
    return tiny, bfloat16, poisoned


def _problem(
    seed: int, dtype: torch.dtype, loss_weight: float = 2.0**-5, poisoned: tuple[tuple[int, float], ...] = ()
) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            seed=seed + 10 * rank,
            dtype=dtype,
            batch_sizes=sizes,
            loss_weight=loss_weight,
            poisoned=poisoned if rank == 1 else (),
            accumulation_steps=_STEPS,
        )
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
