"""Join the reports of several ranks: what each saw, and what shows only beside the others.

Nothing here needs PyTorch: the command that joins them never loads it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from amp_lessons._base.text.words import listed, number
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.report.document import (
    CensusEntry,
    Document,
    FindingEntry,
    LayerEntry,
    LayerStepEntry,
    NonfiniteEntry,
    RankEntry,
    ScaleEntry,
    StepEntry,
)
from amp_lessons.audit.report.steps import by_optimizer, ranks_in_words, scale_path
from amp_lessons.audit.rules.rows import weight

Ranks = Mapping[int, Document]


def joined(reports: Ranks, ended_first: Iterable[int] = ()) -> Document:
    """Return one report of all ranks; ``ended_first`` are ranks in the order in which they ended.

    What only some ranks saw names them. Raises ValueError without any report.
    """
    if not reports:
        raise ValueError("there are no reports to join: give one of each rank")
    order = sorted(reports)
    lowest = reports[order[0]]
    by_end = [*ended_first, *(rank for rank in order if rank not in set(ended_first))]
    unwell = [rank for rank in by_end if rank in reports and reports[rank]["ended"]]
    findings = sorted([*parted(reports), *_findings(reports)], key=_weight)
    return Document(
        schema=lowest["schema"],
        version=lowest["version"],
        of=lowest["of"],
        passed=all(each["kind"] != "failed" for each in findings),
        findings=findings,
        steps=joined_steps(reports),
        layers=joined_layers(reports),
        first_nonfinite=_first_nonfinite(reports),
        every=lowest["every"],
        ended="; ".join(f"rank {rank}: {reports[rank]['ended']}" for rank in unwell),
        explanation=next(filter(None, (reports[rank]["explanation"] for rank in unwell)), None),
        not_seen=_not_seen(reports),
        how=next(filter(None, (reports[rank]["how"] for rank in order)), None),
        ranks=[_rank(rank, reports[rank]) for rank in order],
        precision=lowest["precision"],
    )


def _weight(finding: FindingEntry) -> tuple[bool, int, bool, int]:
    """Put mistakes before remarks, and what costs most before the rest, as one rank's report does."""
    ok, likely = finding["kind"] != "failed", bool(finding["likely"])
    return ok, weight(finding["code"]), likely, finding["first_step"]


def _findings(reports: Ranks) -> list[FindingEntry]:
    """Return each finding once, with the ranks that saw it."""
    found: dict[tuple[str, str, int], FindingEntry] = {}
    for rank in sorted(reports):
        for each in reports[rank]["findings"]:
            place = each["place"]
            key = each["code"], place["file"] if place else "", place["line"] if place else 0
            found[key] = _both(found[key], each, rank) if key in found else _of(each, rank)
    return list(found.values())


def _of(finding: FindingEntry, rank: int) -> FindingEntry:
    return finding | {"ranks": [rank]}


def _both(known: FindingEntry, other: FindingEntry, rank: int) -> FindingEntry:
    surer = known if not known["likely"] else other
    together = {
        "ranks": [*known["ranks"], rank],
        "count": max(known["count"], other["count"]),
        "first_step": min(known["first_step"], other["first_step"]),
    }
    return cast(FindingEntry, surer | together)


def _first_nonfinite(reports: Ranks) -> NonfiniteEntry | None:
    """Return what one rank's report would prefer: that of a forward pass, then the earliest."""
    found = [(rank, reports[rank]["first_nonfinite"]) for rank in sorted(reports)]
    named: list[NonfiniteEntry] = [each | {"rank": rank} for rank, each in found if each is not None]
    return min(named, key=lambda each: (each["phase"] != "forward", each["step"]), default=None)


def _not_seen(reports: Ranks) -> list[str]:
    """Return each sentence once; what not all ranks say names those that do."""
    said: dict[str, list[int]] = {}
    for rank in sorted(reports):
        for sentence in reports[rank]["not_seen"]:
            said.setdefault(sentence, []).append(rank)
    return [
        sentence if len(ranks) == len(reports) else f"on {ranks_in_words(ranks)}: {sentence}"
        for sentence, ranks in said.items()
    ]


def _rank(rank: int, document: Document) -> RankEntry:
    paths = [scale_path(steps) for steps in by_optimizer(document).values()]
    scales = sorted({change for path in paths for change in path})
    return RankEntry(
        rank=rank,
        steps=len(document["steps"]),
        skipped=[step["index"] for step in document["steps"] if not step["happened"]],
        scales=[ScaleEntry(step=step, scale=scale) for step, scale in scales],
        ended=document["ended"],
    )


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
        yield _entry(rules.ranks.weights_apart(_say_gradients(reports, applied)), applied, reports)
    if scaled is not None and scaled <= _never(skipped):
        yield _entry(rules.ranks.scales_apart(_say_scales(reports, scaled)), scaled, reports)
    if skipped is not None:
        yield _entry(rules.ranks.skipped_apart(_say_skips(reports, skipped)), skipped, reports)
    counts = {rank: len(document["steps"]) for rank, document in reports.items()}
    if len(set(counts.values())) > 1 and not any(document["ended"] for document in reports.values()):
        said = listed([f"{count} on rank {rank}" for rank, count in counts.items()])
        yield _entry(rules.ranks.steps_apart(said), min(counts.values()), reports)


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
        lesson=rules.ROWS[finding.code].lesson,
        ranks=sorted(reports),
    )
