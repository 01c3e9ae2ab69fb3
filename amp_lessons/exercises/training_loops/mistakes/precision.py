"""In which dtype forward, loss and backward ran: where autocast starts and stops."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.watching.tape_there import Forward
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

# mistakes beside which those in scaling and stepping can still be told
WITHOUT_EFFECT_ON_UPDATES = ("backward_in_autocast", "evaluation_mode")


def mistakes(run: Run) -> Iterator[Finding]:
    """Look for the mistakes of precision, one that may be the cause of others first."""
    yield from _loss_function_unused(run)
    yield from _parameters_in_half(run)
    yield from _another_model(run)
    yield from _evaluation_mode(run)
    yield from _forward_without_autocast(run)
    yield from _forward_in_another_dtype(run)
    yield from _stale_weights(run)
    yield from _scaled_too_early(run)
    yield from _loss_in_half(run)
    yield from _backward_under_autocast(run)


def _forwards(run: Run) -> list[Forward]:
    return [step.forward for step in run.steps if step.forward]


def _loss_function_unused(run: Run) -> Iterator[Finding]:
    if run.steps:
        return
    if run.tape.losses_without_graph:
        yield catalogue.steps.no_graph()
    yield failed(
        "loss_fn_unused",
        "loss_fn was never called with gradients enabled: nothing was trained with it",
        "compute loss = loss_fn(model(inputs), targets) for every batch of the loader",
    )


def _parameters_in_half(run: Run) -> Iterator[Finding]:
    used = [forward.parameter_dtype for forward in _forwards(run) if forward.own_model]
    if any(dtype != torch.float32 for dtype in (*used, *(p.dtype for p in run.parameters))):
        yield catalogue.precision.half_parameters()


def _another_model(run: Run) -> Iterator[Finding]:
    forwards, untouched = _forwards(run), torch.equal(run.start_weights, run.end_weights)
    if forwards and untouched and not any(forward.own_model for forward in forwards):
        yield failed(
            "model_not_trained",
            "a copy of the model was trained: the weights of the model that was passed in never changed",
            "call model(inputs) on the model you were given",
        )


def _evaluation_mode(run: Run) -> Iterator[Finding]:
    if not all(forward.training for forward in _forwards(run)):
        yield catalogue.precision.evaluation_mode("while it was trained")


def _forward_without_autocast(run: Run) -> Iterator[Finding]:
    forwards = _forwards(run)
    without = sum(forward.autocast_dtype is None for forward in forwards)
    if without:
        all_of_them = without == len(forwards)
        which = "the forward pass" if all_of_them else f"{without} of {len(forwards)} forward passes"
        yield catalogue.precision.no_autocast(f"{which} model(inputs)", dtype_name(run.problem.dtype))


def _forward_in_another_dtype(run: Run) -> Iterator[Finding]:
    for forward in _forwards(run):
        if forward.autocast_dtype not in (None, run.problem.dtype):
            yield catalogue.precision.wrong_autocast_dtype(
                "autocast", dtype_name(forward.autocast_dtype), run.problem.dtype
            )


def _stale_weights(run: Run) -> Iterator[Finding]:
    if any(forward.stale for forward in _forwards(run)):
        yield catalogue.precision.one_big_autocast()


def _scaled_too_early(run: Run) -> Iterator[Finding]:
    if any(call.elements != 1 for call in run.calls("scale")):
        yield catalogue.steps.outputs_scaled()


def _loss_in_half(run: Run) -> Iterator[Finding]:
    scaled_dtypes = {call.dtype for call in run.calls("scale") if call.dtype is not None}
    loss_dtypes = {step.loss.dtype for step in run.steps}
    halves = set(HALVES.values())
    if not any(step.loss.autocast for step in run.steps) and loss_dtypes & halves:
        yield catalogue.steps.loss_outside_autocast(dtype_name(run.problem.dtype))
    for dtype in (loss_dtypes | scaled_dtypes) & halves:
        yield catalogue.steps.loss_in_half(dtype_name(dtype))


def _backward_under_autocast(run: Run) -> Iterator[Finding]:
    if any(backward.autocast for step in run.steps for backward in step.backwards):
        yield catalogue.precision.backward_in_autocast(dtype_name(run.problem.dtype))
