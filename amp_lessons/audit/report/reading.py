"""Turn a document back into the report that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from amp_lessons.audit.explaining import Explanation
from amp_lessons.audit.report.document import (
    CensusEntry,
    Document,
    FrameEntry,
    LayerEntry,
    LayerStepEntry,
    NonfiniteEntry,
    RankEntry,
    finding_of,
    place_of,
)
from amp_lessons.audit.report.how import How
from amp_lessons.audit.seen import Frame, LayerSeen, LayerStep, Nonfinite, RankSeen, StepSeen
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import Census


def fields_of(document: Document) -> dict[str, Any]:
    """Return the arguments that make a ``Report``. Raises ValueError for a document that is damaged."""
    try:
        return {
            "findings": tuple(map(finding_of, document["findings"])),
            "steps": tuple(StepSeen(**each) for each in document["steps"]),
            "layers": {each["name"]: _layer(each) for each in document["layers"]},
            "first_nonfinite": _nonfinite(document["first_nonfinite"]),
            "every": document["every"],
            "ended": document["ended"],
            "explanation": Explanation(**document["explanation"]) if document["explanation"] else None,
            "not_seen": tuple(document["not_seen"]),
            "of": document["of"],
            "how": How(**document["how"]) if document["how"] else None,
            "ranks": tuple(map(_rank, document["ranks"])),
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this report is damaged: {type(error).__name__}: {error}") from error


def _layer(entry: LayerEntry) -> LayerSeen:
    return LayerSeen(
        name=entry["name"],
        parameters=entry["parameters"],
        dtypes={what: _dtype(name) for what, name in entry["dtypes"].items()},
        history=tuple(map(_layer_step, entry["history"])),
        part=entry["part"],
        replicated=entry["replicated"],
    )


def _layer_step(entry: LayerStepEntry) -> LayerStep:
    fields: Any = entry | {
        "census": None if entry["census"] is None else _census(entry["census"]),
        "counterfactual": {name: _census(each) for name, each in entry["counterfactual"].items()},
    }
    return LayerStep(**fields)


def _census(entry: CensusEntry) -> Census:
    return Census(
        dtype=_dtype(entry["dtype"]),
        scale=entry["scale"],
        zero=entry["zero"],
        nonfinite=entry["nonfinite"],
        fates={fate: _by_binade(counts) for fate, counts in entry["fates"].items()},
        norm=entry["norm"],
        underflowed_norm=entry["underflowed_norm"],
    )


def _by_binade(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(binade): count for binade, count in counts.items()}


def _nonfinite(entry: NonfiniteEntry | None) -> Nonfinite | None:
    if entry is None:
        return None
    fields: Any = entry | {
        "before": tuple(map(_frame, entry["before"])),
        "place": place_of(entry["place"]),
    }
    return Nonfinite(**fields)


def _rank(entry: RankEntry) -> RankSeen:
    scales = tuple((each["step"], each["scale"]) for each in entry["scales"])
    return RankSeen(entry["rank"], entry["steps"], tuple(entry["skipped"]), scales, entry["ended"])


def _frame(entry: FrameEntry) -> Frame:
    fields: Any = entry | {"dtype": _dtype(entry["dtype"])}
    return Frame(**fields)


@cache
def _dtypes() -> dict[str, torch.dtype]:
    return {dtype_name(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


def _dtype(name: str) -> torch.dtype:
    if name not in _dtypes():
        raise ValueError(f"this PyTorch ({torch.__version__}) has no dtype {name!r}")
    return _dtypes()[name]
