"""Claims about single modules: those that need an island of fp32, and the dtypes of weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import torch

from amp_lessons.advice.advice import Claim
from amp_lessons.advice.facts import Facts
from amp_lessons.advice.subject import plain_path
from amp_lessons.autocast import Island
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES
from amp_lessons.text.words import listed, relative

_MOST_NAMED = 8


def claims_of_islands(facts: Facts) -> Iterator[Claim]:
    """Tell the islands in the dtype of the advice one by one, those in the other dtype together."""
    for dtype, islands in facts.islands.items():
        name = dtype_name(dtype)
        if dtype is facts.dtype:
            for island in islands.found:
                where = _named(island.module)
                yield Claim(
                    "mend",
                    f"{where[0].upper()}{where[1:]} needs an island of fp32.",
                    _because(island, name),
                    "measured",
                    island.module,
                )
        elif islands.found:
            yield Claim(
                "watch",
                f"In {name}, {_all_named(islands.names)} would need an island of fp32.",
                _because(islands.found[0], name),
                "measured",
            )
        if islands.beyond:
            yield Claim(
                "mend" if dtype is facts.dtype else "watch",
                f"In {name}, fp32 does not help {_all_named(islands.beyond)}: what goes in is wrong already.",
                "its error is above tolerance under autocast, and also as an island of fp32.",
                "measured",
            )
    yield from _no_islands(facts)


def _named(path: str) -> str:
    """Name a module by its path in the learner's model."""
    return {"": "the loss", "model": "the model itself"}.get(path, f"`{plain_path(path)}`")


def _all_named(paths: Sequence[str]) -> str:
    more = [f"{len(paths) - _MOST_NAMED} more"] if len(paths) > _MOST_NAMED else []
    return listed([*map(_named, paths[:_MOST_NAMED]), *more])


def _off(error: float) -> str:
    return f"{relative(error)} off" if error else "exactly right"


def _because(island: Island, name: str) -> str:
    went = "inf or NaN come out" if island.overflows else f"it is {_off(island.error)}"
    return (
        f"its own operations run by autocast's rules in {name} on what it is given in fp32: {went}; as an "
        f"island it is {_off(island.island_error)}. The largest number that it returns is "
        f"{island.largest:.3g}."
    )


def _no_islands(facts: Facts) -> Iterator[Claim]:
    clean = [dtype for dtype, islands in facts.islands.items() if not (islands.found or islands.beyond)]
    if not clean or not any(facts.islands[dtype].examined for dtype in clean):
        return
    names = " or ".join(map(dtype_name, clean))
    examined = min(facts.islands[dtype].examined for dtype in clean)
    left = max(len(facts.islands[dtype].unexamined) for dtype in clean)
    rest = f"; {left} could not be, or there was no time" if left else ""
    modules = (
        "one module was run by itself" if examined == 1 else f"{examined} modules were run by themselves"
    )
    yield Claim(
        "answer",
        f"On this batch no module{' that was run' if left else ''} needs an island of fp32 in {names}.",
        f"{modules} by autocast's rules and in fp32{rest}.",
        "measured",
    )


def claims_of_weights(facts: Facts) -> Iterator[Claim]:
    """Say what the weights' own dtypes mean to autocast; those that are frozen lose nothing to rounding."""
    trained: Counter[torch.dtype] = Counter()
    for each in facts.subject.model.parameters():
        if each.requires_grad:
            trained[each.dtype] += each.numel()
    for dtype, count in trained.items():
        name = dtype_name(dtype)
        because = f"{count:,} of the {trained.total():,} numbers that are trained are {name}"
        if dtype in HALVES.values():
            yield Claim(
                "mend",
                "Load the weights in fp32; autocast makes the 16-bit copies.",
                f"{because}: nothing keeps them in fp32, and their updates are rounded.",
                "measured",
            )
        elif dtype is torch.float64:
            yield Claim(
                "mend",
                "Make the model fp32 first, with `model.float()`, and what goes in too.",
                f"{because}, which autocast leaves alone.",
                "measured",
            )
        elif dtype.is_complex:
            yield Claim(
                "watch",
                "Expect nothing of autocast for complex numbers.",
                f"{because}, which it leaves alone.",
                "measured",
            )
