"""Turn a report into the document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from amp_lessons.audit.explaining import Explanation
from amp_lessons.audit.findings import Place, Sighting
from amp_lessons.audit.report.document import (
    SCHEMA,
    VERSION,
    CensusEntry,
    Document,
    ExplanationEntry,
    FindingEntry,
    FrameEntry,
    HowEntry,
    LayerEntry,
    LayerStepEntry,
    NonfiniteEntry,
    PlaceEntry,
    RankEntry,
    ScaleEntry,
    StepEntry,
)
from amp_lessons.audit.seen import Frame, LayerSeen, LayerStep, Nonfinite, RankSeen
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import Census

if TYPE_CHECKING:
    from amp_lessons.audit.report.report import Report


def document_of(report: Report) -> Document:
    """Write all that a report holds."""
    return Document(
        schema=SCHEMA,
        version=VERSION,
        of=report.of,
        passed=report.passed,
        findings=[_finding(each) for each in report.findings],
        steps=[cast(StepEntry, asdict(each)) for each in report.steps],
        layers=[_layer(each) for each in report.layers.values()],
        first_nonfinite=_nonfinite(report.first_nonfinite),
        every=report.every,
        ended=report.ended,
        explanation=_explanation(report.explanation),
        not_seen=list(report.not_seen),
        how=cast(HowEntry, asdict(report.how)) if report.how is not None else None,
        ranks=[_rank(each) for each in report.ranks],
    )


def _finding(finding: Sighting) -> FindingEntry:
    return FindingEntry(
        code=finding.code,
        kind=finding.kind,
        message=finding.message,
        hint=finding.hint,
        certainty=finding.certainty,
        likely=finding.likely,
        place=_place(finding.place),
        count=finding.count,
        first_step=finding.first_step,
        lesson=finding.lesson,
        ranks=list(finding.ranks),
    )


def _place(place: Place | None) -> PlaceEntry | None:
    return None if place is None else cast(PlaceEntry, asdict(place))


def _layer(layer: LayerSeen) -> LayerEntry:
    return LayerEntry(
        name=layer.name,
        parameters=layer.parameters,
        dtypes={what: dtype_name(dtype) for what, dtype in layer.dtypes.items()},
        history=[_layer_step(each) for each in layer.history],
        part=layer.part,
        replicated=layer.replicated,
    )


def _layer_step(seen: LayerStep) -> LayerStepEntry:
    return LayerStepEntry(
        step=seen.step,
        census=None if seen.census is None else _census(seen.census),
        counterfactual={name: _census(census) for name, census in seen.counterfactual.items()},
        norm=seen.norm,
        zero_fraction=seen.zero_fraction,
        lost_update_fraction=seen.lost_update_fraction,
    )


def _census(census: Census) -> CensusEntry:
    return CensusEntry(
        dtype=dtype_name(census.dtype),
        scale=census.scale,
        zero=census.zero,
        nonfinite=census.nonfinite,
        at_stake=census.at_stake,
        underflowed=census.underflowed,
        overflowed=census.overflowed,
        underflow_fraction=census.underflow_fraction,
        underflow_norm_fraction=None if census.norm is None else census.underflow_norm_fraction,
        norm=census.norm,
        underflowed_norm=census.underflowed_norm,
        fates={fate: _by_binade(counts) for fate, counts in census.fates.items()},
    )


def _by_binade(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(binade): count for binade, count in counts.items()}


def _nonfinite(found: Nonfinite | None) -> NonfiniteEntry | None:
    if found is None:
        return None
    return NonfiniteEntry(
        module=found.module,
        operation=found.operation,
        phase=found.phase,
        step=found.step,
        before=[_frame(each) for each in found.before],
        place=_place(found.place),
        recovered=found.recovered,
        rank=found.rank,
    )


def _rank(seen: RankSeen) -> RankEntry:
    return RankEntry(
        rank=seen.rank,
        steps=seen.steps,
        skipped=list(seen.skipped),
        scales=[ScaleEntry(step=step, scale=scale) for step, scale in seen.scales],
        ended=seen.ended,
    )


def _frame(frame: Frame) -> FrameEntry:
    fields: Any = asdict(frame) | {"dtype": dtype_name(frame.dtype)}
    return cast(FrameEntry, fields)


def _explanation(explanation: Explanation | None) -> ExplanationEntry | None:
    return None if explanation is None else cast(ExplanationEntry, asdict(explanation))
