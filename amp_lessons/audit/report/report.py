"""The report of an audit: its findings, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import torch
from markupsafe import Markup

from amp_lessons._base.arguments import require_items
from amp_lessons._base.typed_json import hints_of, made, written
from amp_lessons.audit.explaining import Explanation
from amp_lessons.audit.findings import Sighting
from amp_lessons.audit.report import as_json, rendering
from amp_lessons.audit.report.document import SCHEMA, VERSION, Document
from amp_lessons.audit.report.how import How
from amp_lessons.audit.report.together import joined
from amp_lessons.audit.seen import LayerSeen, Nonfinite, PrecisionSeen, RankSeen, StepSeen
from amp_lessons.formats.dtypes import dtype_name


@dataclass(frozen=True)
class Report:
    """What is wrong with a training, as far as it was seen: mistakes first, then remarks.

    ``every`` is the distance of the steps that were looked at closely; ``ended`` says how the training ended
    if it was by an exception, ``explanation`` what that means; ``not_seen`` says, a sentence each, what could
    not be watched; ``of`` names the script, and ``how`` tells how the audit was done. ``ranks`` are
    those whose reports were joined (``audit.of_ranks``), none where the training had one process.
    ``precision`` says in which one it ran; None in a report that an older version has written.
    """

    findings: tuple[Sighting, ...]
    steps: tuple[StepSeen, ...] = ()
    layers: Mapping[str, LayerSeen] = field(default_factory=dict)
    first_nonfinite: Nonfinite | None = None
    every: int = 1
    ended: str = ""
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

    def to_dict(self) -> Document:
        """Return the report as plain numbers and words, under the keys of ``audit.report.document``."""
        head: dict[str, Any] = {"schema": SCHEMA, "version": VERSION}
        rest = {name: hint for name, hint in hints_of(Document).items() if name not in head}
        names = {torch.dtype: dtype_name}
        return cast(Document, head | {n: written(hint, getattr(self, n), names) for n, hint in rest.items()})

    @classmethod
    def from_dict(cls, document: Document) -> Report:
        """Return the report that ``to_dict`` made a document of. Raises ValueError for anything else."""
        return _report_of(as_json.checked(document))

    def as_json(self, indent: int | None = None) -> str:
        """Return the same as JSON; inf and NaN become "Infinity", "-Infinity" and "NaN"."""
        return as_json.dumps(self.to_dict(), indent)

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the report that ``as_json`` has written. Raises ValueError for anything else."""
        return _report_of(as_json.loads(text))

    def __str__(self) -> str:
        return str(rendering.Words(self.to_dict()))

    __repr__ = __str__

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        return rendering.Words(self.to_dict()).as_markdown()

    def as_html(self) -> Markup:
        """Render as HTML, without pictures; ``views.audit_page`` makes a whole page with them."""
        return rendering.Words(self.to_dict()).as_html()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return rendering.Words(self.to_dict())._repr_mimebundle_()


def _report_of(document: Document) -> Report:
    """Make the report of a document; what it says of shares and certainty follows from the rest."""
    layers = {each["name"]: each for each in document["layers"]}
    return made(Report, {**document, "layers": layers}, {torch.dtype: _dtype}, unknown_too=True)


@cache
def _dtypes() -> dict[str, torch.dtype]:
    return {dtype_name(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


def _dtype(name: str) -> torch.dtype:
    if name not in _dtypes():
        raise ValueError(f"this PyTorch ({torch.__version__}) has no dtype {name!r}")
    return _dtypes()[name]


def of_ranks(reports: Iterable[Report]) -> Report:
    """Join the reports of all ranks, given in the order of their ranks, into one.

    ``audit.of_ranks(parallel.run(train, 2))`` does it where ``train`` returns the ``seen.report`` of an
    ``audit.watch`` inside. Findings name the ranks that saw them; steps and layers are those of the training
    as a whole: equal copies count once, shards are added up, losses are means. Findings of its own tell how
    ranks came apart: other loss scales, a step that one skipped and another made, other gradients under
    ``DistributedDataParallel``. Raises TypeError for anything but reports, ValueError for none.
    """
    given = require_items(reports, Report, "reports", "the report of a rank")
    return Report.from_dict(joined({rank: report.to_dict() for rank, report in enumerate(given)}))
