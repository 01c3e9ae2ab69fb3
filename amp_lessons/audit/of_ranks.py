"""One report of a training on several ranks."""

from __future__ import annotations

from collections.abc import Iterable

from amp_lessons.arguments import require_items
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.report.together import joined


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
