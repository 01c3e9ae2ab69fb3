"""The report as a document: plain numbers and words, which JSON holds and which all renderings read.

Nothing here needs PyTorch, so that whoever only reads a report does not wait for it. The classes say which
keys there are; ``VERSION`` goes up when one changes its meaning or goes away, not when one is added.
"""

from __future__ import annotations

from typing import TypedDict

from amp_lessons._base.typed_json import made
from amp_lessons.audit.findings import Sighting

SCHEMA = "amp-lessons audit report"
VERSION = 2  # 1 knew one process only


class PlaceEntry(TypedDict):
    """A line of somebody's own code: ``line`` counts from 1, ``source`` is what stands there."""

    file: str
    line: int
    source: str


class FindingEntry(TypedDict):
    """One finding; ``code`` is one of ``audit.rules.ROWS``.

    ``kind`` is ``failed`` for a mistake and ``note`` for a remark, ``message`` the cause, ``hint`` the cure.
    ``certainty`` is ``seen`` or ``likely``; ``likely`` gives the reason of the latter. ``first_step`` counts
    optimizer steps from 0, ``lesson`` is the number of the lesson that explains it. ``ranks`` are those that
    saw it, where the report is of several; ``count`` is then that of the rank that saw it most often.
    """

    code: str
    kind: str
    message: str
    hint: str
    certainty: str
    likely: str
    place: PlaceEntry | None
    count: int
    first_step: int
    lesson: str
    ranks: list[int]


class StepEntry(TypedDict):
    """One step that an optimizer was asked for; the fields of ``audit.StepSeen``, steps counted from 0.

    Of several ranks: ``happened`` on all of them, ``loss`` and ``lost_updates`` are means over ranks,
    ``gradient_norm`` is that of all shards, ``scale`` the lowest rank's.
    """

    index: int
    optimizer: int
    happened: bool
    scale: float
    loss: float | None
    sampled: bool
    gradient_norm: float | None
    lost_updates: float | None
    learning_rate: float | None
    backwards: int


class CensusEntry(TypedDict):
    """What became of gradients, or would, in the format ``dtype`` at a loss scale.

    ``fates`` maps each fate to counts by binade, floor(log2(abs(g))) before scaling, and these with the
    counts ``zero`` and ``nonfinite`` are all gradients. ``at_stake``, ``underflowed`` and ``overflowed``
    count them, ``underflow_fraction`` is the share of those at stake that become zero,
    ``underflow_norm_fraction`` the same by their Euclidean norm.
    """

    dtype: str
    scale: float
    zero: int
    nonfinite: int
    at_stake: int
    underflowed: int
    overflowed: int
    underflow_fraction: float
    underflow_norm_fraction: float | None
    norm: float | None
    underflowed_norm: float | None
    fates: dict[str, dict[str, int]]


class LayerStepEntry(TypedDict):
    """One layer at one sampled step: the fields of ``audit.LayerStep``, formats by their short names."""

    step: int
    census: CensusEntry | None
    counterfactual: dict[str, CensusEntry]
    norm: float
    zero_fraction: float
    lost_update_fraction: float | None


class LayerEntry(TypedDict):
    """One layer: the number of its trainable parameters, the dtypes of what belongs to it, its history.

    ``part`` says which shard of it the history is of, "" all of it; ``replicated`` that
    ``DistributedDataParallel`` kept it equal on all ranks.
    """

    name: str
    parameters: int
    dtypes: dict[str, str]
    history: list[LayerStepEntry]
    part: str
    replicated: bool


class FrameEntry(TypedDict):
    """One module's turn in a pass, and the largest magnitude of what it returned."""

    module: str
    kind: str
    operation: str
    largest: float
    dtype: str


class NonfiniteEntry(TypedDict):
    """The first inf or NaN; ``before`` are the frames that led there, the last one being its own.

    ``rank`` is that on which it was, null where there is only one.
    """

    module: str
    operation: str
    phase: str
    step: int
    before: list[FrameEntry]
    place: PlaceEntry | None
    recovered: bool
    rank: int | None


class ExplanationEntry(TypedDict):
    """What ``audit.explain`` says of the exception that ended the training."""

    known: bool
    said: str
    meaning: str
    cure: str
    lesson: str
    name: str
    source: str
    seen_at: str


class HowEntry(TypedDict):
    """How the audit was done; ``began`` is in ISO 8601, ``seconds`` the training's, with the audit's own."""

    torch: str
    amp_lessons: str
    python: str
    device: str
    began: str
    seconds: float
    looking_seconds: float


class ScaleEntry(TypedDict):
    """The step from which on the loss scale was ``scale``."""

    step: int
    scale: float


class RankEntry(TypedDict):
    """One of several ranks: how many ``steps`` it was asked for, which of them it ``skipped``, its scales.

    ``ended`` says how it ended, "" where it ended well.
    """

    rank: int
    steps: int
    skipped: list[int]
    scales: list[ScaleEntry]
    ended: str


class PrecisionEntry(TypedDict):
    """In which precision the training ran: the fields of ``audit.PrecisionSeen``, dtypes by their names."""

    autocast: list[str]
    autocast_off: bool
    scaler: bool
    scaler_off: bool
    by_hand: list[str]


class Document(TypedDict):
    """All of a report. ``passed`` is False where a mistake was seen, ``of`` says of what the report is.

    The answer comes first, and then what it rests on, as in all forms of a report. ``ranks`` are those whose
    reports were joined in it, none for a training of one process; ``precision`` is null where an older
    version wrote the report.
    """

    schema: str
    version: int
    of: str
    passed: bool
    precision: PrecisionEntry | None
    findings: list[FindingEntry]
    ended: str
    explanation: ExplanationEntry | None
    first_nonfinite: NonfiniteEntry | None
    steps: list[StepEntry]
    ranks: list[RankEntry]
    layers: list[LayerEntry]
    not_seen: list[str]
    every: int
    how: HowEntry | None


def empty(of: str = "") -> Document:
    """Return the report of a training of which nothing was seen."""
    return Document(
        schema=SCHEMA,
        version=VERSION,
        of=of,
        passed=True,
        findings=[],
        steps=[],
        layers=[],
        first_nonfinite=None,
        every=1,
        ended="",
        explanation=None,
        not_seen=[],
        how=None,
        ranks=[],
        precision=None,
    )


def finding_of(entry: FindingEntry) -> Sighting:
    """Make the finding of an entry, which says its certainty besides."""
    return made(Sighting, entry, unknown_too=True)
