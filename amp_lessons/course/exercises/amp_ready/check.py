"""Which modules need fp32, of models that are made anew: by name, no more and no fewer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.amp_ready.models_there import built
from amp_lessons.course.exercises.report import common_findings

_THERE = "amp_lessons.course.exercises.amp_ready.models_there:ask"


# the paths of the modules that are wrong, below its block, and why they are not easily found
KINDS: dict[str, tuple[tuple[str, ...], str]] = {
    "a finite number is wrong": (
        (".3",),
        "returns zeros in fp16: a sum in it is inf, and what is divided by that is finite",
    ),
    "a quotient is wrong": ((".1",), "returns NaN in fp16, as inf divided by inf is"),
    "no layer is wrong by itself": (
        (".1",),
        "multiplies what its layers return, which overflows, though each layer is right",
    ),
    "no part is wrong by itself": (
        ("",),
        "is the model itself: it multiplies what its parts return, which overflows, though each is right",
    ),
    "two modules are wrong": (
        (".1", ".10"),
        "goes wrong as well, on the finite numbers that it is given in an fp32 pass",
    ),
    "one call of a module is wrong": (
        (".1.shared", ".3.shared"),
        "is called twice, and goes wrong at one of the calls",
    ),
    "some rows are large": ((".parts.2",), "goes wrong in rows that are neither the first nor the last"),
    "a large number is added to all": ((".4",), "is 8 % off in norm: each of its numbers by a little"),
    "a large number is added to one column": ((), "one number of a row is off by 5.3 %"),
    "small numbers are wrong": (
        (".1",),
        "returns zeros for most of its numbers, which are near 1e-5: a product in it is too small for fp16",
    ),
    "one row is tiny": ((), "one row is 0 in fp16, which is next to nothing of all numbers of a call"),
    "one of three calls is wrong": (
        (".4.shared",),
        "is 8 % off at one of its three calls, and right at the others",
    ),
    "modules work in place": (
        (),
        "a module works in place, and overwrites what another returned, or its own input",
    ),
    "a module works in its own input": (
        (".1",),
        "divides its input in place, by a norm that overflows in fp16, and is right on what it leaves there",
    ),
}
_HOW = (
    "run every module of named_modules(), the model as well, by itself under autocast, on fp16 copies of "
    "what it is given at each call of an fp32 pass, and keep copies of what it returns there; right is "
    "what has (output - right).norm() <= 0.05 * right.norm(), which NaN never has. What lies within 'a.1' "
    "begins with 'a.1.', which 'a.10' does not"
)
_LIST = (
    "end with return names, a list of strings as model.named_modules() gives them; [] where none is needed"
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Compare the names returned for models of many kinds, made anew, with those that need fp32."""
    amp_ready = bed.function(worker, "amp_ready", None, None)
    seeds = torch.randint(2**20, (len(KINDS),), generator=draw).tolist()
    for kind, seed in zip(KINDS, seeds, strict=True):
        what = f"a model in which {kind}"
        told, _ = amp_ready.called_by(_THERE, about=f"for {what}", extra=(kind, seed))
        names, (model, _, block) = _names(told, what), built(kind, seed)
        wrong, why = KINDS[kind]
        bed.require_none(_mistakes(names, what, model, {block + below for below in wrong}, why))
    yield passed("islands_named", f"the islands of {len(KINDS)} models that you had not seen")
    yield passed("as_it_was", "each model was left as it was: weights, mode, hooks, forward")


def _names(told: dict[str, Any], what: str) -> set[str]:
    """Return the names that were named; reject what are none, and an attempt that left its mark."""
    if told["changed"]:
        bed.reject(
            "model_left_changed",
            f"after you looked at {what}, {told['changed']} is not as it was: whoever trains it next trains "
            "something else",
            "remove hooks by their handles, in finally, put back what you replace, and run on batch.clone()",
        )
    if not isinstance(told["names"], list):
        seen = f"{told['words']}, for {what}"
        raise bed.Rejected(common_findings.wrong_return_type("a list of names was", seen, _LIST))
    return set(told["names"])


def _mistakes(
    names: set[str], what: str, model: nn.Module, expected: set[str], why: str
) -> Iterator[Finding]:
    """Yield what is wrong with the names, from what they are to those that are missing."""
    modules, missing, others = dict(model.named_modules()), expected - names, names - expected
    for name in names - modules.keys():
        yield failed("no_such_module", f"{what} has no module {name!r}, only {_said({*modules})}", _LIST)
    parents = {name for name in others if any(each.startswith(name and f"{name}.") for each in expected)}
    if healthy := others - parents:
        said = f"of {what} you named {_said(healthy)}: right under autocast, within 5 % in norm, on the "
        yield failed(
            "healthy_named", said + "inputs of the fp32 pass" + ("" if expected else f"; {why}"), _HOW
        )
    if missing:
        yield failed("island_missed", f"you named {_said(names)} of {what}, but {_said(missing)} {why}", _HOW)
    if parents:
        said = f"of {what} you named {_said(parents)}: all of it would be in fp32, and only "
        inner = "of a module and one within it that both are wrong, name the inner one; it may lie several "
        inner += "levels down, and like any other it is given its inputs in fp16"
        yield failed("parent_named", f"{said}{_said(expected)} in it has to be", inner)


def _said(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)[:6]) or "nothing"
