"""What a right loss scaler does otherwise than PyTorch's, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amp_lessons.audit.findings import Finding, note
from amp_lessons.exercises.loss_scaler.mistakes import skipped_step_clears_gradients
from amp_lessons.exercises.loss_scaler.scenarios import Iteration
from amp_lessons.exercises.report.common_findings import remark_on_type


def remarks(seen: Sequence[Iteration]) -> Iterator[Finding]:
    """Remark on the iterations of a scaler in which nothing is wrong."""
    for each in seen:
        yield from remark_on_type(each.scale_after, float)
    if any(each.replaced for each in seen):
        yield note(
            "gradients_replaced",
            "unscale_ put other tensors into .grad instead of dividing those that were there: whoever holds "
            "the old ones, as DDP's gradient_as_bucket_view does, has them still multiplied by the scale",
            "divide in place: parameter.grad /= scale",
        )
    if any(each.overflowed and not each.left.any() for each in seen):
        yield skipped_step_clears_gradients()
    if any(each.scale_after_step != each.scale_before for each in seen):
        yield note(
            "scale_changed_in_step",
            "the scale changed in step, before update was called: with a second optimizer, whose loss was "
            "scaled by the old scale, step would divide its gradients by the new one",
            "note the overflow in step, and change the scale in update",
        )
