"""Join the reports of several ranks: what each saw, and what shows only beside the others.

Nothing here needs PyTorch: the command that joins them never loads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from amp_lessons.audit.report.document import Document, FindingEntry, NonfiniteEntry, RankEntry, ScaleEntry
from amp_lessons.audit.report.parting import parted
from amp_lessons.audit.report.ranks import ranks_in_words
from amp_lessons.audit.report.shards import joined_layers, joined_steps
from amp_lessons.audit.report.steps import by_optimizer, scale_path

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
    )


def _weight(finding: FindingEntry) -> tuple[bool, bool, int]:
    """Put mistakes before remarks, and what was seen before what is likely, as one rank's report does."""
    return finding["kind"] != "failed", bool(finding["likely"]), finding["first_step"]


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
