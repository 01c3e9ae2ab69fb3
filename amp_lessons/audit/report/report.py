"""The report of an audit: its findings, and the numbers behind them; a dataclass that is the document.

Nothing here loads PyTorch, so that whoever only reads a report does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from amp_lessons._base.render import InSections, Section
from amp_lessons._base.typed_json import dumps, made, of_schema, parsed, plain
from amp_lessons.audit.explaining import Explanation
from amp_lessons.audit.findings import Place, Sighting
from amp_lessons.audit.report import rendering
from amp_lessons.audit.seen import How, LayerSeen, Nonfinite, PrecisionSeen, RankSeen, StepSeen

_SCHEMA, _WHAT = "amp-lessons audit report", "report of an audit"
_VERSION = 2  # goes up when a key changes its meaning or goes away, not when one is added; 1 knew one process
_Layers = Mapping[str, LayerSeen]


@dataclass(frozen=True, repr=False)
class Report(InSections):
    """The mistakes of a training, as far as they were seen, then remarks, and the numbers behind them.

    ``every`` is the distance of the steps that were looked at closely; ``ended`` says how the training ended
    if it was by an exception, ``ended_at`` on which line, ``explanation`` what that means; ``not_seen`` says,
    a sentence each, what could not be watched; ``of`` names the script, and ``how`` tells how the audit was
    done. ``ranks`` are those whose reports were joined (``audit.of_ranks``), none of a single process.
    ``precision`` says in which one it ran; None in a report that an older version has written.
    ``views.audit_page`` makes a whole page of it, with pictures.
    """

    html_class = "amp-audit"
    JSON_KEYS: ClassVar = (
        "of", "passed", "precision", "findings", "ended", "ended_at", "explanation", "first_nonfinite",
        "steps", "ranks", "layers", "not_seen", "every", "how",
    )  # fmt: skip

    findings: tuple[Sighting, ...]
    steps: tuple[StepSeen, ...] = ()
    layers: _Layers = field(default_factory=dict)
    first_nonfinite: Nonfinite | None = None
    every: int = 1
    ended: str = ""
    ended_at: Place | None = None
    not_seen: tuple[str, ...] = ()
    of: str = ""
    explanation: Explanation | None = None
    how: How | None = None
    ranks: tuple[RankSeen, ...] = ()
    precision: PrecisionSeen | None = None

    @property
    def passed(self) -> bool:
        """Whether no mistake was seen; remarks do not count."""
        return all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """1.0 where no mistake was seen, else 0.0: for graders."""
        return 1.0 if self.passed else 0.0

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        return rendering.headline(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain numbers and words; dtypes are named, layers are listed."""
        document = {"schema": _SCHEMA, "version": _VERSION, **plain(self)}
        return document | {"layers": list(document["layers"].values())}

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Report:
        """Return the report that ``to_dict`` made a document of. Raises ValueError for anything else."""
        document = of_schema(document, _WHAT, _SCHEMA, _VERSION)
        try:
            document = _with_added(_of_version_2(document))
        except (TypeError, AttributeError) as error:
            raise ValueError(f"this report is damaged: {type(error).__name__}: {error}") from error
        try:
            return made(cls, document, {_Layers: _by_name}, unknown_too=True, whole=True)
        except TypeError as error:
            raise ValueError(f"this report is damaged: {error}") from error

    def as_json(self, indent: int | None = None) -> str:
        """Return the same as JSON; inf and NaN become "Infinity", "-Infinity" and "NaN"."""
        return dumps(self.to_dict(), indent)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that ``as_json`` has written. Raises ValueError for anything else."""
        return cls.from_dict(parsed(text, _WHAT))

    def opening(self) -> Iterator[str]:
        """Yield the answer: the verdict, what it costs, and what ran."""
        return rendering.opening(self)

    def all_sections(self) -> Iterator[Section]:
        """Yield the findings, then what they rest on."""
        return rendering.sections_of(self)


def _by_name(entry: Any) -> _Layers:
    listed = made(tuple[LayerSeen, ...], entry, unknown_too=True, whole=True)
    return {layer.name: layer for layer in listed}


def _of_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2: that of a training of one process."""
    if document["version"] == _VERSION:
        return document
    found = document.get("first_nonfinite")
    return document | {
        "findings": [each | {"ranks": []} for each in document.get("findings", [])],
        "layers": [each | {"part": "", "replicated": False} for each in document.get("layers", [])],
        "first_nonfinite": found | {"rank": None} if found else None,
        "ranks": [],
    }


def _with_added(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the keys that the first reports of its version lack."""
    added: dict[str, Any] = {"precision": None, "ended_at": None} | document
    if added["precision"] is not None:
        added["precision"] = {"by_hand": []} | added["precision"]
    if isinstance(document.get("steps"), list):
        added["steps"] = [{"backwards": 1} | step for step in document["steps"]]
    return added
