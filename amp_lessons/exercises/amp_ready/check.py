"""Which modules need fp32, of models that are made anew: by name, no more and no fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.amp_ready import mistakes
from amp_lessons.exercises.amp_ready.models import KINDS, Case, case_of
from amp_lessons.exercises.amp_ready.snapshot import Snapshot
from amp_lessons.exercises.attempt import Attempt, LearnersFunction

_SEEDS = (11, 23)
# Of two kinds in which the same is tried from two sides, one model each: the check has ten seconds.
_ONCE = {"second call": 11, "first call": 23, "large weights": 11, "products": 23}


def check(attempt: Attempt) -> Iterator[Finding]:
    """Ask for the islands of models of eight kinds."""
    amp_ready = attempt.function(torch.nn.Identity(), torch.zeros(1))
    cases = [(kind, seed) for seed in _SEEDS for kind in KINDS if _ONCE.get(kind, seed) == seed]
    for kind, seed in cases:
        _ask(amp_ready, case_of(kind, seed))
    yield passed("islands_named", f"the islands of {len(cases)} models that you had not seen")
    yield passed("as_it_was", "each model was left as it was: weights, mode, hooks, forward")


def _ask(amp_ready: LearnersFunction, case: Case) -> None:
    before = Snapshot(case.model, case.batch)
    answer: Any = amp_ready(case.model, case.batch, about=f"for {case.what}")
    mistakes.require_as_it_was(before, case)
    names = mistakes.names_in(answer, case)
    mistakes.require_no_other(names, case)
    mistakes.require_all(names, case)
