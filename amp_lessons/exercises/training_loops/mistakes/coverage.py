"""Were all batches trained on, as they are, with the optimizer that was given?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES


def inputs_changed(run: Run) -> Iterator[Finding]:
    """Find batches that were changed in place."""
    if run.inputs_changed:
        yield common_findings.inputs_changed(
            "the loader's own tensors", "make new tensors instead of changing the batch in place"
        )


def batches(run: Run) -> Iterator[Finding]:
    """Find batches that were left out, used too often, or changed on their way to the model."""
    bad = dict(run.problem.poisoned)
    wanted = [i for _ in range(run.problem.epochs) for i in range(len(run.batches)) if i not in bad]
    seen = [step.batch for step in run.steps]
    if bad:
        seen = [i for i in seen if i is not None and i not in bad]
    if None in seen:
        yield failed(
            "inputs_altered",
            "the model was given other values than the loader yields: a batch was changed on its way to "
            "model(inputs)",
            "pass the inputs as they are; autocast does the casting",
        )
    if len(seen) < len(wanted):
        yield _too_few(run, len(seen), len(wanted))
    if len(seen) > len(wanted) or _by_epoch(seen, run) != _by_epoch(wanted, run):
        yield failed(
            "batches_repeated",
            f"{len(seen)} training passes were made over {len(wanted)} batches: some batches were used more "
            "often than others",
            "one forward, backward and step per batch of the loader",
        )


def _too_few(run: Run, seen: int, wanted: int) -> Finding:
    if run.problem.poisoned:
        return catalogue.scaler.stops_at_overflow()
    epochs, batches = run.problem.epochs, len(run.batches)
    full_windows = batches // run.problem.accumulation_steps * run.problem.accumulation_steps
    left_over = ": those left over at the end of an epoch were not" if seen == epochs * full_windows else ""
    return failed(
        "batches_skipped",
        f"only {seen} of {wanted} batches were trained on ({epochs} epochs of {batches} batches){left_over}",
        "loop over the whole loader anew in each epoch",
    )


def _by_epoch(seen: Sequence[int | None], run: Run) -> list[list[int]]:
    """Cut a sequence of batches into epochs, in which their order does not matter."""
    size = len(seen) // run.problem.epochs
    return [sorted(i for i in seen[k : k + size] if i is not None) for k in range(0, len(seen), size)]


def another_optimizer(run: Run) -> Iterator[Finding]:
    """Find an optimizer other than the one that was passed in, or other settings of it."""
    if run.optimizer_changed:
        yield failed(
            "optimizer_changed",
            "the settings of the optimizer that was passed in (its learning rate, say) are different after "
            "training",
            "leave the optimizer's settings to whoever made it; scaling is undone by the scaler, not by "
            "the learning rate",
        )
    steps = run.calls("optimizer.step")
    if steps and all(call.owner != run.optimizer_id for call in steps):
        yield _optimizer_unused()


def optimizer_untouched(run: Run) -> Iterator[Finding]:
    """Find an optimizer that never stepped."""
    if all(call.owner != run.optimizer_id for call in run.calls("optimizer.step")):
        yield _optimizer_unused()


def _optimizer_unused() -> Finding:
    return failed(
        "optimizer_unused",
        "the optimizer that was passed in never stepped; its settings, and any schedule on them, were "
        "ignored",
        "step the optimizer you were given, with scaler.step(optimizer)",
    )


def _how_changed(run: Run) -> str:
    for dtype in HALVES.values():
        if torch.equal(run.start_weights.to(dtype).float(), run.steps[0].loss.weights):
            return f"rounded to {dtype_name(dtype)}, as a cast of the model there and back does"
    return "whatever the model had learned is lost"


def weights_reset(run: Run) -> Iterator[Finding]:
    """Find weights that were changed before the first batch."""
    if run.steps and not torch.equal(run.start_weights, run.steps[0].loss.weights):
        yield failed(
            "weights_reset",
            f"the weights were changed before the first batch: {_how_changed(run)}",
            "train the model as it is passed in",
        )
