"""Which modules need fp32, of models that are made anew: by name, no more and no fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import nn

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.amp_ready.cases import KINDS, ModelCase, case_of
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, function
from amp_lessons.course.exercises.report import common_findings

_THERE = "amp_lessons.course.exercises.amp_ready.models_there:ask"

_SEEDS = (11, 23)
# Of some kinds one model is enough: the check has ten seconds.
_ONCE = {
    "nan": 11,
    "second call": 11,
    "first call": 23,
    "large weights": 11,
    "products": 23,
    "rows": 23,
    "evenly": 11,
    "one column": 11,
    "one call of three": 23,
    "in place": 11,
}
CASES = [(kind, seed) for seed in _SEEDS for kind in KINDS if _ONCE.get(kind, seed) == seed]


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Compare the names returned for models of many kinds, made anew, with those that need fp32."""
    amp_ready = function(worker, "amp_ready", None, None)
    shift = int(torch.randint(2**20, (), generator=draw))
    for kind, seed in CASES:
        _ask(amp_ready, kind, seed + shift)
    yield passed("islands_named", f"the islands of {len(CASES)} models that you had not seen")
    yield passed("as_it_was", "each model was left as it was: weights, mode, hooks, forward")


def _ask(amp_ready: LearnersFunction, kind: str, seed: int) -> None:
    case = case_of(kind, seed)
    told, _ = amp_ready.called_by(_THERE, about=f"for {case.what}", extra=(kind, seed))
    require_as_it_was(told, case)
    names = names_in(told, case)
    require_no_other(names, case)
    require_all(names, case)


# --- what is wrong with a list of islands, from what it is to the names that are missing

_LIST = (
    "end with return names, a list of strings as model.named_modules() gives them; [] where none is needed"
)


def require_as_it_was(told: dict[str, Any], case: ModelCase) -> None:
    """Reject an attempt that changed the model or the batch."""
    if told["batch_changed"]:
        raise Rejected(
            common_findings.inputs_changed("the batch's numbers", "run modules on copies: batch.clone()")
        )
    if change := told["changes"]:
        reject(
            "model_left_changed",
            f"after you looked at {case.what}, {change}: whoever trains it next trains something else",
            "remove hooks by their handles, in finally, and put back whatever you replace",
        )


def names_in(told: dict[str, Any], case: ModelCase) -> set[str]:
    """Return the names that were named. Rejects what are no names of modules."""
    if not isinstance(told["names"], list):
        raise Rejected(
            common_findings.wrong_return_type(
                "a list of names was", f"{told['words']}, for {case.what}", _LIST
            )
        )
    known = {name for name, _ in case.model.named_modules()}
    for name in told["names"]:
        if name not in known:
            reject("no_such_module", f"{case.what} has no module {name!r}, only {_said(known)}", _LIST)
    return set(told["names"])


def require_no_other(names: set[str], case: ModelCase) -> None:
    """Reject names of modules that are right in fp16."""
    others = names - case.expected
    if not others:
        return
    modules = dict(case.model.named_modules())
    if len(others) >= len(modules) - len(case.expected) - 1:
        reject(
            "everything_named",
            f"of {case.what} you named {len(names)} of {len(modules)} modules: that is not mixed precision",
            "name only what goes wrong: compare what a module returns under autocast with fp32",
        )
    _reject_parents(names, case)
    norms = {name for name, module in modules.items() if isinstance(module, (nn.LayerNorm, nn.BatchNorm1d))}
    if others == norms:
        reject(
            "named_by_type",
            f"{_said(norms)} of {case.what} {_are(norms)} right under autocast, though "
            f"{'it is a norm' if len(norms) == 1 else 'they are norms'}",
            "a type says nothing; run the module and look at what comes out",
        )
    code = case.kind.named
    reject(
        code,
        f"{_said(others)} of {case.what} {_are(others)} right under autocast, within 5 % in norm, on the "
        f"inputs of the fp32 pass{_TRAPS.get(code, '')}",
        _HINTS[code],
    )


def _reject_parents(names: set[str], case: ModelCase) -> None:
    for name in sorted(names, key=len, reverse=True):
        parts = {
            each for each in case.expected if each != name and each.startswith(name + "." if name else "")
        }
        if parts - names and case.kind.missed in ("later_call_missed", "first_call_missed"):
            _reject_missing(_said(names), parts - names, case)
        if parts:
            reject(
                "parent_named",
                f"you named {name or 'the model itself'!r} of {case.what}: all of it would be in fp32, and "
                f"only {_said(parts)} in it has to be",
                "of a module and one within it that both come out wrong, name the inner one; it may lie "
                "several levels down, and like any other it is given its inputs in fp16",
            )


def require_all(names: set[str], case: ModelCase) -> None:
    """Reject where a module that needs an island is not named."""
    missing = case.expected - names
    longer = [name for name in names for short in missing if name.startswith(short)]
    if longer:
        reject(
            "prefix_not_a_part",
            f"you left out {_said(missing)} of {case.what}; {longer[0]!r} begins with the same letters, "
            "but is no part of it",
            "a part's name begins with that of the whole and a dot",
        )
    if missing and not names:
        _reject_missing(
            "none of its modules" if case.kind.missed == "island_missed" else "nothing", missing, case
        )
    if missing:
        _reject_missing(_said(names), missing, case)


def _reject_missing(named: str, missing: set[str] | frozenset[str], case: ModelCase) -> NoReturn:
    reject(
        case.kind.missed,
        f"you named {named} of {case.what}, but {_said(missing)} {_WHY[case.kind.missed]}",
        _HINTS[case.kind.missed],
    )


_TRAPS = {
    "not_by_norm": ": one number of a row is off by 8 %",
    "changed_in_place": ": a module works in place, and overwrites what another returned, or its own input",
}
_WHY = {
    "finite_but_wrong": "returns zeros in fp16: a sum in it is inf, and what is divided by that is finite",
    "nan_unnoticed": "returns NaN in fp16, as inf divided by inf is",
    "own_operations_missed": "multiplies what its layers return, which overflows, though each layer is right",
    "hidden_by_the_first": "goes wrong too, once the one before it is an island and its inputs are finite",
    "later_call_missed": "is called twice, and goes wrong at the second call",
    "first_call_missed": "is called twice, and goes wrong at the first call",
    "island_missed": "adds up more than fp16 holds, though its weights are like any other's",
    "rows_missed": "goes wrong in rows that are neither the first nor the last",
    "not_by_norm": "is 8 % off in norm: each of its numbers by a little",
    "calls_averaged": "is 8 % off at one of its three calls, and right at the others",
}
_HINTS = {
    "healthy_named": "compare each module on the inputs of the fp32 pass: an inf that goes in is not its own",
    "changed_in_place": "keep copies made before a module runs: what it does in place changes them no more",
    "not_by_norm": "compare (output - right).norm() with 5 % of right.norm(), all numbers of a call together",
    "calls_averaged": "judge each call by itself: one that is wrong is enough",
    "rows_missed": "compare the whole batch, not a row of it",
    "nan_unnoticed": "error > limit is False for NaN, and lets it pass; not (error <= limit) notices it",
    "finite_but_wrong": "do not only look for inf and NaN: compare with what the module returns in fp32",
    "own_operations_missed": "look at every module, also at those with children, not at leaves alone",
    "hidden_by_the_first": "take the inputs of each module from a pass in fp32, where nothing is inf",
    "later_call_missed": "keep all calls of a module, not one by its name",
    "first_call_missed": "keep all calls of a module, not one by its name",
    "island_missed": "run the module on what it is given: weights and types tell nothing",
}


def _are(names: set[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _said(names: set[str] | frozenset[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)[:6]) or "nothing"
