"""Join the reports of several ranks: what each saw, and what shows only beside the others.

The command that joins them never loads PyTorch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from amp_lessons._base.text.words import listed, number
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, Sighting
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.report.steps import by_optimizer, ranks_in_words, scale_path
from amp_lessons.audit.rules.rows import order, sighting
from amp_lessons.audit.seen import LayerSeen, LayerStep, RankSeen, ScaleFrom, StepSeen, mean
from amp_lessons.scaling.fates import Census

Ranks = Mapping[int, Report]


def of_ranks(reports: Iterable[Report]) -> Report:
    """Join the reports of all ranks, given in the order of their ranks, into one.

    ``audit.of_ranks(parallel.run(train, 2))`` does it where ``train`` returns the ``seen.report`` of an
    ``audit.watch`` inside. Findings name the ranks that saw them; steps and layers are those of the training
    as a whole: equal copies count once, shards are added up, losses are means. Findings of its own tell how
    ranks came apart: other loss scales, a step that one skipped and another made, other gradients under
    ``DistributedDataParallel``. Raises TypeError for anything but reports, ValueError for none.
    """
    from amp_lessons._base.arguments import require_items  # it loads PyTorch

    return joined(dict(enumerate(require_items(reports, Report, "reports", "the report of a rank"))))


def joined(reports: Ranks, ended_first: Iterable[int] = ()) -> Report:
    """Return one report of all ranks; ``ended_first`` are ranks in the order in which they ended.

    What only some ranks saw names them. Raises ValueError without any report.
    """
    if not reports:
        raise ValueError("there are no reports to join: give one of each rank")
    reports = dict(sorted(reports.items()))
    by_end = [*ended_first, *(rank for rank in reports if rank not in set(ended_first))]
    unwell = [rank for rank in by_end if rank in reports and reports[rank].ended]
    lowest = next(iter(reports.values()))
    first = ((rank, report.first_nonfinite) for rank, report in reports.items())
    nonfinite = [replace(each, rank=rank) for rank, each in first if each is not None]
    return replace(
        lowest,
        findings=tuple(sorted([*parted(reports), *_findings(reports)], key=order)),
        steps=joined_steps(reports),
        layers=joined_layers(reports),
        # as one rank's report prefers it: of a forward pass, then the earliest
        first_nonfinite=min(nonfinite, key=lambda each: (each.phase != "forward", each.step), default=None),
        ended="; ".join(f"rank {rank}: {reports[rank].ended}" for rank in unwell),
        ended_at=reports[unwell[0]].ended_at if unwell else None,
        explanation=next(filter(None, (reports[rank].explanation for rank in unwell)), None),
        not_seen=tuple(_not_seen(reports)),
        how=next(filter(None, (report.how for report in reports.values())), None),
        ranks=tuple(_rank(rank, report) for rank, report in reports.items()),
    )


def _findings(reports: Ranks) -> list[Sighting]:
    """Return each finding once, with the ranks that saw it."""
    found: dict[tuple[str, str, int], Sighting] = {}
    for rank, report in reports.items():
        for each in report.findings:
            place = each.place
            key = each.code, place.file if place else "", place.line if place else 0
            known = found.get(key)
            if known is None:
                found[key] = replace(each, ranks=(rank,))
                continue
            found[key] = replace(
                each if known.likely else known,
                ranks=(*known.ranks, rank),
                count=max(known.count, each.count),
                first_step=min(known.first_step, each.first_step),
            )
    return list(found.values())


def _not_seen(reports: Ranks) -> Iterator[str]:
    """Yield each sentence once; what not all ranks say names those that do."""
    said: dict[str, list[int]] = {}
    for rank, report in reports.items():
        for sentence in report.not_seen:
            said.setdefault(sentence, []).append(rank)
    for sentence, ranks in said.items():
        yield sentence if len(ranks) == len(reports) else f"on {ranks_in_words(ranks)}: {sentence}"


def _rank(rank: int, report: Report) -> RankSeen:
    paths = [scale_path(steps) for steps in by_optimizer(report).values()]
    return RankSeen(
        rank=rank,
        steps=len(report.steps),
        skipped=tuple(step.index for step in report.steps if not step.happened),
        scales=tuple(ScaleFrom(*each) for each in sorted({change for path in paths for change in path})),
        ended=report.ended,
    )


def joined_steps(reports: Ranks) -> tuple[StepSeen, ...]:
    """Return the steps that any rank was asked for, each as all ranks together took it."""
    by_parts: dict[tuple[str, ...], int] = {}  # ranks that hold all of the model between them, nothing twice
    for rank, report in reports.items():
        by_parts.setdefault(tuple(layer.part for layer in report.layers.values()), rank)
    by_index: dict[int, dict[int, StepSeen]] = {}
    for rank, report in reports.items():
        for step in report.steps:
            by_index.setdefault(step.index, {})[rank] = step
    return tuple(_step(by_index[index], by_parts.values()) for index in sorted(by_index))


def _step(of_ranks: Mapping[int, StepSeen], holders: Collection[int]) -> StepSeen:
    steps = of_ranks.values()
    norms = [of_ranks[rank].gradient_norm for rank in holders if rank in of_ranks]
    known = [norm for norm in norms if norm is not None]
    return replace(
        next(iter(steps)),
        happened=all(step.happened for step in steps),
        sampled=any(step.sampled for step in steps),
        loss=mean(step.loss for step in steps),
        lost_updates=mean(step.lost_updates for step in steps),
        gradient_norm=math.hypot(*known) if known and len(known) == len(norms) else None,
    )


def joined_layers(reports: Ranks) -> dict[str, LayerSeen]:
    """Return the layers of all ranks by their names; of shards, what they are together."""
    parts: dict[str, dict[str, LayerSeen]] = {}
    for report in reports.values():
        for name, layer in report.layers.items():
            parts.setdefault(name, {}).setdefault(layer.part, layer)
    return {name: _whole(list(of_layer.values())) for name, of_layer in parts.items()}


def _whole(parts: Sequence[LayerSeen]) -> LayerSeen:
    if len(parts) == 1:
        return parts[0]
    by_step: dict[int, list[LayerStep]] = {}
    for part in parts:
        for seen in part.history:
            by_step.setdefault(seen.step, []).append(seen)
    complete = [by_step[step] for step in sorted(by_step) if len(by_step[step]) == len(parts)]
    return replace(parts[0], part="", history=tuple(map(_layer_step, complete)))


def _layer_step(seen: Sequence[LayerStep]) -> LayerStep:
    """Add up what was seen of a layer's shards at one step."""
    used = [each.census for each in seen if each.census is not None]
    weights = [next((census.total for census in each.counterfactual.values()), 0) for each in seen]
    return LayerStep(
        step=seen[0].step,
        census=_added(used) if len(used) == len(seen) else None,
        counterfactual={
            name: _added([each.counterfactual[name] for each in seen]) for name in seen[0].counterfactual
        },
        norm=math.hypot(*(each.norm for each in seen)),
        zero_fraction=mean([each.zero_fraction for each in seen], weights) or 0.0,
        lost_update_fraction=mean([each.lost_update_fraction for each in seen], weights),
    )


def _added(parts: Sequence[Census]) -> Census:
    """Add up the censuses of shards, whatever their loss scales: ranks may have come apart."""
    of, scale = parts[0].dtype_name, parts[0].scale
    return reduce(add, (replace(part, dtype_name=of, scale=scale) for part in parts))


_NEVER = sys.maxsize  # a step that no training comes to
_SAME = 1e-6  # of a norm: all ranks hold the same bits after an all-reduce
_OF_THEIR_OWN = (
    "without DistributedDataParallel or shards, each rank may be meant to train a model of its own"
)


def parted(reports: Ranks) -> Iterator[Sighting]:
    """Yield how ranks that train the same model came apart: what was first, not all that follows from it."""
    reports = _of_one_model(reports)
    if len(reports) < 2:
        return
    shared = zip(*(report.steps for report in reports.values()), strict=False)  # that all ranks took
    steps = {of_ranks[0].index: dict(zip(reports, of_ranks, strict=True)) for of_ranks in shared}
    skipped = _first_apart(steps, lambda step: step.happened)
    scaled = _first_apart(steps, lambda step: step.scale)
    applied, norms = _gradients_apart(reports)
    if applied <= skipped and applied < scaled:
        said = f"before step {applied + 1} the ranks had different gradients, in one layer of norm {norms}"
        yield _sighting(rules.ranks.weights_apart(said), applied, reports)
    if scaled <= skipped and scaled < _NEVER:
        scales = _numbers(step.scale for step in steps[scaled].values())
        said = f"the ranks went into step {scaled + 1} with different loss scales, {scales}"
        yield _sighting(rules.ranks.scales_apart(said), scaled, reports)
    if skipped < _NEVER:
        made = ranks_in_words(rank for rank, step in steps[skipped].items() if step.happened)
        left_out = ranks_in_words(rank for rank, step in steps[skipped].items() if not step.happened)
        said = f"{left_out} skipped step {skipped + 1}, which {made} made"
        yield _sighting(rules.ranks.skipped_apart(said), skipped, reports)
    counts = {rank: len(report.steps) for rank, report in reports.items()}
    if len(set(counts.values())) > 1 and not any(report.ended for report in reports.values()):
        said = listed([f"{count} on rank {rank}" for rank, count in counts.items()])
        yield _sighting(rules.ranks.steps_apart(said), min(counts.values()), reports)


def _of_one_model(reports: Ranks) -> Ranks:
    """Return the reports of ranks whose layers are those of the lowest; a pipeline's stages have others."""
    models = {
        rank: [(layer.name, layer.parameters) for layer in report.layers.values()]
        for rank, report in sorted(reports.items())
        if report.steps
    }
    first = next(iter(models.values()), [])
    return {rank: reports[rank] for rank, model in models.items() if model == first}


def _first_apart(steps: Mapping[int, Mapping[int, StepSeen]], of: Callable[[StepSeen], object]) -> int:
    """Return the first step of which ranks say different things."""
    return next((at for at, there in steps.items() if len(set(map(of, there.values()))) > 1), _NEVER)


def _gradients_apart(reports: Ranks) -> tuple[int, str]:
    """Return the first step at which equal copies of a layer had other gradients, and their norms."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for rank, report in reports.items():
        for layer in report.layers.values():
            if layer.replicated and not layer.part:
                for seen in layer.history:
                    found.setdefault((layer.name, seen.step), {})[rank] = seen.norm
    apart = [(step, norms) for (_, step), norms in found.items() if not _equal(norms.values())]
    step, norms = min(apart, key=lambda each: each[0], default=(_NEVER, {0: 0.0}))
    return step, _numbers({norms[min(norms)], max(norms.values()), min(norms.values())})


def _equal(norms: Iterable[float]) -> bool:
    finite = [norm for norm in norms if math.isfinite(norm)]
    return not finite or max(finite) - min(finite) <= _SAME * max(finite)


def _numbers(values: Iterable[float]) -> str:
    return listed([number(value, 6) for value in sorted(set(values))])


def _sighting(finding: Finding, step: int, reports: Ranks) -> Sighting:
    layers = [layer for report in reports.values() for layer in report.layers.values()]
    certain = finding.ok or any(layer.replicated or layer.part for layer in layers)
    likely = "" if certain else _OF_THEIR_OWN
    return sighting(finding, likely=likely, first_step=step, ranks=tuple(sorted(reports)))
