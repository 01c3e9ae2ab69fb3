"""How ranks part: what shows only where their reports lie side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.report.document import Document, FindingEntry, LayerEntry, StepEntry
from amp_lessons.audit.report.ranks import ranks_in_words
from amp_lessons.text.words import listed, number

Ranks = Mapping[int, Document]
_SAME = 1e-6  # of a norm: all ranks hold the same bits after an all-reduce
_OF_THEIR_OWN = (
    "without DistributedDataParallel or shards, each rank may be meant to train a model of its own"
)


def parted(reports: Ranks) -> Iterator[FindingEntry]:
    """Yield how ranks that train the same model came apart: what was first, not all that follows from it."""
    reports = _of_one_model(reports)
    if len(reports) < 2:
        return
    skipped, scaled, applied = _skips(reports), _scales(reports), _gradients(reports)
    if applied is not None and applied <= _never(skipped) and applied < _never(scaled):
        yield _entry(catalogue.ranks.weights_apart(_say_gradients(reports, applied)), applied, reports)
    if scaled is not None and scaled <= _never(skipped):
        yield _entry(catalogue.ranks.scales_apart(_say_scales(reports, scaled)), scaled, reports)
    if skipped is not None:
        yield _entry(catalogue.ranks.skipped_apart(_say_skips(reports, skipped)), skipped, reports)
    counts = {rank: len(document["steps"]) for rank, document in reports.items()}
    if len(set(counts.values())) > 1 and not any(document["ended"] for document in reports.values()):
        said = listed([f"{count} on rank {rank}" for rank, count in counts.items()])
        yield _entry(catalogue.ranks.steps_apart(said), min(counts.values()), reports)


def _never(step: int | None) -> float:
    return math.inf if step is None else step


def _of_one_model(reports: Ranks) -> Ranks:
    """Return the reports of ranks whose layers are those of the lowest; a pipeline's stages have others."""
    layers = {rank: _model(document) for rank, document in sorted(reports.items()) if document["steps"]}
    first = next(iter(layers.values()), ())
    return {rank: reports[rank] for rank, model in layers.items() if model == first}


def _model(document: Document) -> tuple[tuple[str, int], ...]:
    return tuple((layer["name"], layer["parameters"]) for layer in document["layers"])


def _shared_steps(reports: Ranks) -> Iterator[tuple[int, dict[int, StepEntry]]]:
    """Yield the steps that all ranks took, in order."""
    for steps in zip(*(document["steps"] for document in reports.values()), strict=False):
        yield steps[0]["index"], dict(zip(reports, steps, strict=True))


def _first_where(reports: Ranks, differ: Any) -> int | None:
    return next((index for index, steps in _shared_steps(reports) if differ(list(steps.values()))), None)


def _skips(reports: Ranks) -> int | None:
    return _first_where(reports, lambda steps: len({step["happened"] for step in steps}) > 1)


def _scales(reports: Ranks) -> int | None:
    return _first_where(reports, lambda steps: len({step["scale"] for step in steps}) > 1)


def _gradients(reports: Ranks) -> int | None:
    """Return the first step at which copies of a layer that are to be equal had other gradients."""
    norms = _replicated_norms(reports)
    return min((step for step, of_ranks in norms if not _equal(of_ranks.values())), default=None)


def _replicated_norms(reports: Ranks) -> list[tuple[int, dict[int, float]]]:
    found: dict[tuple[str, int], dict[int, float]] = {}
    for rank, document in reports.items():
        for layer in filter(_is_replicated, document["layers"]):
            for seen in layer["history"]:
                found.setdefault((layer["name"], seen["step"]), {})[rank] = seen["norm"]
    return [(step, of_ranks) for (_, step), of_ranks in found.items()]


def _is_replicated(layer: LayerEntry) -> bool:
    return layer["replicated"] and not layer["part"]


def _equal(norms: Any) -> bool:
    finite = [norm for norm in norms if math.isfinite(norm)]
    return not finite or max(finite) - min(finite) <= _SAME * max(finite)


def _say_skips(reports: Ranks, index: int) -> str:
    steps = dict(_shared_steps(reports))[index]
    made = ranks_in_words(rank for rank, step in steps.items() if step["happened"])
    skipped = ranks_in_words(rank for rank, step in steps.items() if not step["happened"])
    return f"{skipped} skipped step {index + 1}, which {made} made"


def _say_scales(reports: Ranks, index: int) -> str:
    scales = {step["scale"] for step in dict(_shared_steps(reports))[index].values()}
    return f"the ranks went into step {index + 1} with different loss scales, {_numbers(scales)}"


def _say_gradients(reports: Ranks, index: int) -> str:
    of_ranks = next(r for step, r in _replicated_norms(reports) if step == index and not _equal(r.values()))
    norms = _numbers({of_ranks[min(of_ranks)], max(of_ranks.values()), min(of_ranks.values())})
    return f"before step {index + 1} the ranks had different gradients, in one layer of norm {norms}"


def _numbers(values: set[float]) -> str:
    return listed([number(value, 6) for value in sorted(values)])


def _entry(finding: Finding, step: int, reports: Ranks) -> FindingEntry:
    layers = [layer for document in reports.values() for layer in document["layers"]]
    certain = finding.ok or any(layer["replicated"] or layer["part"] for layer in layers)
    return FindingEntry(
        code=finding.code,
        kind=finding.kind,
        message=finding.message,
        hint=finding.hint,
        certainty="seen" if certain else "likely",
        likely="" if certain else _OF_THEIR_OWN,
        place=None,
        count=1,
        first_step=step,
        lesson=catalogue.ROWS[finding.code].lesson,
        ranks=sorted(reports),
    )
