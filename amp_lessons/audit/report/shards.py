"""Steps and layers of several ranks as of one training: equal copies count once, shards are added up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from amp_lessons.audit.report.document import CensusEntry, Document, LayerEntry, LayerStepEntry, StepEntry

Ranks = Mapping[int, Document]


def joined_steps(reports: Ranks) -> list[StepEntry]:
    """Return the steps that any rank was asked for, each as all ranks together took it."""
    holders = _holders(reports)
    of_ranks = {rank: {step["index"]: step for step in reports[rank]["steps"]} for rank in sorted(reports)}
    indices = sorted({index for steps in of_ranks.values() for index in steps})
    return [
        _step({rank: steps[index] for rank, steps in of_ranks.items() if index in steps}, holders)
        for index in indices
    ]


def _holders(reports: Ranks) -> list[int]:
    """Return ranks that hold all of the model between them, and nothing twice."""
    by_parts: dict[tuple[str, ...], int] = {}
    for rank in sorted(reports):
        by_parts.setdefault(tuple(layer["part"] for layer in reports[rank]["layers"]), rank)
    return list(by_parts.values())


def _step(of_ranks: Mapping[int, StepEntry], holders: Sequence[int]) -> StepEntry:
    lowest, *_ = of_ranks.values()
    norms = [of_ranks[rank]["gradient_norm"] for rank in holders if rank in of_ranks]
    together = {
        "happened": all(step["happened"] for step in of_ranks.values()),
        "sampled": any(step["sampled"] for step in of_ranks.values()),
        "loss": _mean(step["loss"] for step in of_ranks.values()),
        "lost_updates": _mean(step["lost_updates"] for step in of_ranks.values()),
        "gradient_norm": None if None in norms or not norms else math.hypot(*cast("list[float]", norms)),
    }
    return cast(StepEntry, lowest | together)


def _mean(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None


def joined_layers(reports: Ranks) -> list[LayerEntry]:
    """Return the layers of all ranks by their names; of shards, what they are together."""
    parts: dict[str, dict[str, LayerEntry]] = {}
    for rank in sorted(reports):
        for layer in reports[rank]["layers"]:
            parts.setdefault(layer["name"], {}).setdefault(layer["part"], layer)
    return [_whole(list(of_layer.values())) for of_layer in parts.values()]


def _whole(parts: Sequence[LayerEntry]) -> LayerEntry:
    if len(parts) == 1:
        return parts[0]
    by_step: dict[int, list[LayerStepEntry]] = {}
    for part in parts:
        for seen in part["history"]:
            by_step.setdefault(seen["step"], []).append(seen)
    complete = [by_step[step] for step in sorted(by_step) if len(by_step[step]) == len(parts)]
    together = {"part": "", "history": [_layer_step(seen) for seen in complete]}
    return cast(LayerEntry, parts[0] | together)


def _layer_step(seen: Sequence[LayerStepEntry]) -> LayerStepEntry:
    """Add up what was seen of a layer's shards at one step."""
    used = [each["census"] for each in seen if each["census"] is not None]
    formats = seen[0]["counterfactual"]
    weights = [_elements(each) for each in seen]
    return LayerStepEntry(
        step=seen[0]["step"],
        census=_census(used) if len(used) == len(seen) else None,
        counterfactual={name: _census([each["counterfactual"][name] for each in seen]) for name in formats},
        norm=math.hypot(*(each["norm"] for each in seen)),
        zero_fraction=_weighted([each["zero_fraction"] for each in seen], weights) or 0.0,
        lost_update_fraction=_weighted([each["lost_update_fraction"] for each in seen], weights),
    )


def _elements(seen: LayerStepEntry) -> int:
    census = next(iter(seen["counterfactual"].values()), None)
    if census is None:
        return 0
    return census["zero"] + census["nonfinite"] + sum(sum(c.values()) for c in census["fates"].values())


def _weighted(shares: Sequence[float | None], weights: Sequence[int]) -> float | None:
    known = [(share, weight) for share, weight in zip(shares, weights, strict=True) if share is not None]
    total = sum(weight for _, weight in known)
    return sum(share * weight for share, weight in known) / total if total else None


def _census(parts: Sequence[CensusEntry]) -> CensusEntry:
    """Add up the censuses of shards: counts by adding, norms as the norm of the whole."""
    at_stake = sum(part["at_stake"] for part in parts)
    underflowed = sum(part["underflowed"] for part in parts)
    norm, underflowed_norm = (_hypot(parts, key) for key in ("norm", "underflowed_norm"))
    fates: dict[str, Counter[str]] = {}
    for part in parts:
        for fate, counts in part["fates"].items():
            fates[fate] = fates.get(fate, Counter()) + Counter(counts)
    return CensusEntry(
        dtype=parts[0]["dtype"],
        scale=parts[0]["scale"],
        zero=sum(part["zero"] for part in parts),
        nonfinite=sum(part["nonfinite"] for part in parts),
        at_stake=at_stake,
        underflowed=underflowed,
        overflowed=sum(part["overflowed"] for part in parts),
        underflow_fraction=underflowed / at_stake if at_stake else 0.0,
        underflow_norm_fraction=None if norm is None else ((underflowed_norm or 0.0) / norm if norm else 0.0),
        norm=norm,
        underflowed_norm=underflowed_norm,
        fates={fate: dict(counts) for fate, counts in fates.items()},
    )


def _hypot(parts: Sequence[CensusEntry], key: str) -> float | None:
    norms = [part[key] for part in parts]  # type: ignore[literal-required]
    return None if None in norms else math.hypot(*norms)
