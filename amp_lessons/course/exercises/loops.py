"""Judge a training loop by what it did on several problems: each update against the true gradient.

Which mistake made a wrong update is told by what that mistake makes of the true gradient, or by what was
called. What neither explains gets the deciding number, and what the audit says of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from amp_lessons import autocast
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first, note, passed
from amp_lessons.course.exercises import bed, loops_there
from amp_lessons.course.exercises.loop_runs import (
    STANDARD,
    TINY_WEIGHT,
    Entry,
    Problem,
    Run,
    Window,
    near,
    same,
)
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALF_DTYPES

_THERE = loops_there.__name__
_LEAST_ROUNDING = 0.25  # of what 16 bits leave in an update: 0.6 to 1 was seen there, 0.01 in fp32
_TRIES, _FURTHER = 5, 1009  # of problems that are tried out, each so many seeds on
_CLOSE = 2e-3  # a loss rounded to four digits still counts
_LOWER_IT = "lower the scale after each overflow, as torch.amp.GradScaler does"
_ONE_SCALER = (
    "make one scaler before the first epoch, or hand on its whole state_dict(), taken after update()"
)
_COUNTED = ("no", "one", "two", "three", "four")
_ADVICE = "collect loss.item() for every batch and return one mean per epoch, as a list of floats"


@dataclass(frozen=True)
class Bench:
    """How a loop is judged: on which problems, with which keyword arguments beyond device_type and dtype.

    ``answer`` is the solution, as a loop; ``fields`` of ``Problem`` and ``constants`` are arguments.
    ``there`` is the module whose ``train`` runs the loop in the worker, ``signature`` what the stub can be
    called with where that is not what a loop is called with. ``mistakes`` looks for what is wrong with a run;
    ``applied`` says which gradient an update is plain SGD on. A problem is drawn again until the solution is
    right on it: how far 16 bits round hangs on the weights, on which earlier rounding leaves its mark.
    """

    answer: Callable[..., Any]
    problems: tuple[Problem, ...] = STANDARD
    fields: tuple[str, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    there: ModuleType = loops_there
    signature: tuple[int, tuple[str, ...]] | None = None
    mistakes: Callable[[Run], list[Finding]] | None = None
    applied: str = "true gradient"

    def given(self, problem: Problem) -> dict[str, Any]:
        """Return what the worker is told of a problem."""
        return problem.given(self.fields, self.constants)

    def require_callable(self, worker: bed.Worker) -> None:
        """Reject what cannot be called as the stub can."""
        count, names = self.signature or (5, (*self.fields, *self.constants))
        options: dict[str, Any] = dict.fromkeys((*names, "device_type", "dtype"))
        bed.function(worker, self.answer.__name__, *[None] * count, **options)

    def judge(self, worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
        """Let the loop train on one problem after another until one shows a mistake."""
        with autocast.cuda_rules():  # once for all that is computed beside it: each time takes milliseconds
            yield from self._judge(worker, draw)

    def _judge(self, worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
        self.require_callable(worker)
        shift, rights, runs = int(torch.randint(2**30, (), generator=draw)), [], []
        train = f"{self.there.__name__}:train"
        for problem in self.problems:
            rights.append(self._drawn(problem, shift))
            run = self._run(rights[-1].problem, partial(worker.call, train, bed.Handle(0)))
            if found := self._found(run):
                line = bed.as_raised(run.told["raised"]).line if run.told["raised"] else ""
                seen = audited(worker, self.given(run.problem), train)
                found[0] = with_audit(found[0], seen, _when(run.problem), line)
                raise bed.Rejected(*found, *self._comparisons(rights, run, run))
            runs.append(run)
        plain, poisoned = runs[:2][-1], next(run for run in runs if run.problem.poisoned)
        yield from _what_holds(self.applied, runs)
        remarks = list(_remarks(runs))
        seen, said = audited(worker, self.given(plain.problem), train), {each.code for each in remarks}
        if plain.problem.max_norm is not None:
            said.add("logs_scaled")  # a norm that is read while scaled, for a limit that is scaled as well
        yield from (*remarks, *_seen_as_well(seen, said))
        yield from self._comparisons(rights, plain, poisoned)

    def _run(self, problem: Problem, train: Callable[[dict[str, Any]], dict[str, Any]]) -> Run:
        """Let a loop train; for longer where every batch overflowed, whose scale has farther to fall."""
        run = Run(problem, train(self.given(problem)))
        if not problem.poisoned and run.windows and all(window.overflowed for window in run.windows):
            longer = replace(problem, epochs=2 * problem.epochs)
            run = Run(longer, train(self.given(longer)))
        return run

    def _found(self, run: Run) -> list[Finding]:
        return (self.mistakes or mistakes)(run)

    def _drawn(self, problem: Problem, shift: int) -> Run:
        """Return what the solution does on the problem, drawn anew."""
        for further in range(_TRIES):
            right = self._answered(problem.drawn_anew(shift + further * _FURTHER))
            if not self._found(right):
                break
        return right

    def _answered(self, problem: Problem) -> Run:
        return self._run(problem, partial(self.there.train, self.answer))

    def _comparisons(self, rights: list[Run], loss_run: Run, scale_run: Run) -> Iterator[bed.SideBySide]:
        """Put losses and scales beside those of the solution on the same problems."""
        known = {right.problem: right for right in rights}
        losses, scales = (
            (known.get(run.problem) or self._answered(run.problem), run) for run in (loss_run, scale_run)
        )
        by_batch = [tuple(each.loss for each in run.seen) for run in losses]
        yield bed.SideBySide("loss of each batch, in the order of training", "batch", *by_batch)
        if scale_run.problem.dtype == torch.float16:
            steps = scale_run.problem.accumulation_steps
            by_batch = [tuple(_scale(each, steps) for each in run.seen) for run in scales]
            yield bed.SideBySide("loss scale at each batch", "batch", *by_batch)


def mistakes(run: Run) -> list[Finding]:
    """List the independent mistakes of one run, the root cause first."""
    problem, when = run.problem, _when(run.problem)
    found = first(conduct(run, when))
    if found is not None:
        return [found]
    each = [first(precision(run))]
    if each[0] is None or each[0].code in ("backward_in_autocast", "evaluation_mode"):
        each.append(first(_updates(run)))  # which can still be told beside these two
    if not problem.poisoned and problem.loss_weight >= TINY_WEIGHT:  # where it holds plain numbers
        each.append(first(history(run)))
    root = [one for one in each if one is not None]
    return [replace(one, message=f"{one.message} ({when})" if when else one.message) for one in root]


def _when(problem: Problem) -> str:
    if problem.dtype == torch.bfloat16:
        return "seen when dtype is torch.bfloat16"
    return f"seen when {_COUNTED[len(problem.poisoned)]} batches overflow in fp16" if problem.poisoned else ""


def conduct(run: Run, when: str) -> Iterator[Finding]:
    """Find an exception, what no attempt may do, and a function that ran nothing."""
    told = run.told
    if told["patched"]:
        yield common_findings.patching(told["patched"])
    if told["raised"]:
        yield _raised(run, when)
    if told["left"]:
        yield common_findings.leaving(told["left"])
    if told["history"]["kind"] in ("generator", "coroutine"):
        yield _wrong_type(f"a {told['history']['kind']}: with yield or async in it, a call runs nothing")


def _raised(run: Run, when: str) -> Finding:
    """Say of an exception what led to it, where the order of batches tells; the audit may know more."""
    raised = bed.as_raised(run.told["raised"])
    if raised.kinds[0] == "NotImplementedError" and raised.by_statement:
        raise bed.Rejected(common_findings.NOT_ATTEMPTED)
    if "Exception" not in raised.kinds:
        return common_findings.blocking(f"called exit(), or raised {raised.kinds[0]}")
    finding, place = bed.said_of(raised), ""
    text = next(iter(raised.text.strip().splitlines()), "")
    if any(dtype != torch.float32 for dtype in run.told["weight_dtypes"]):
        finding = rules.dtypes.half_parameters()
    elif "checks were recorded prior" in text and run.seen:
        direct, left = run.seen[-1].called("optimizer.step", directly=True), run.seen[-1].left
        given = direct[-1].gradients if direct else None  # inf, or divided by the scale by hand
        if given is not None and left is not None and not given.norm() > left.norm() / 4:
            finding = rules.scaler.step_bypasses_scaler("optimizer.step() was called directly")
    elif not run.seen and run.told["without_graph"]:
        finding = rules.loss.no_graph()
    elif "non-finite, so it cannot be clipped" in text:
        finding = rules.scaler.clip_raises_on_overflow()
    elif run.order and run.order[-1] in dict(run.problem.poisoned) and "inf checks" not in text:
        finding = rules.scaler.stops_at_overflow(": ".join(filter(None, [raised.kinds[0], text[:300]])))
    if finding.code != "raised" and raised.line:
        place = f" [PyTorch noticed in {raised.line}]"
    return replace(finding, message=f"{finding.message}{f' ({when})' if when else ''}{place}")


# --- in which dtype forward, loss and backward ran


def precision(run: Run) -> Iterator[Finding]:
    """Find what ran in another dtype than asked for, what may be the cause of others first."""
    seen, half = run.seen, dtype_name(run.problem.dtype)
    forwards = [entry for entry in seen if entry.inputs is not None]
    if not seen:
        if run.told["without_graph"]:
            yield rules.loss.no_graph()
        said = "loss_fn was never called with gradients enabled: nothing was trained with it"
        hint = "compute loss = loss_fn(model(inputs), targets) for every batch of the loader"
        yield failed("loss_fn_unused", said, hint)
    used = [entry.weight_dtype for entry in forwards if entry.own]
    if any(dtype != torch.float32 for dtype in (*used, *run.told["weight_dtypes"])):
        yield rules.dtypes.half_parameters()
    if forwards and torch.equal(run.start, run.end) and not any(entry.own for entry in forwards):
        said = "a copy of the model was trained: the weights of the model that was passed in never changed"
        yield failed("model_not_trained", said, "call model(inputs) on the model you were given")
    if not all(entry.training for entry in forwards):
        yield rules.dtypes.evaluation_mode("while it was trained")
    without = sum(entry.autocast is None for entry in forwards)
    if without:
        which = "" if without == len(forwards) else f"{without} of {len(forwards)} forward passes "
        yield rules.dtypes.no_autocast(f"{which or 'the forward pass '}model(inputs)", half)
    for entry in forwards:
        if entry.autocast is not None and entry.autocast != run.problem.dtype:
            ran_in = dtype_name(entry.autocast)
            yield rules.dtypes.wrong_autocast_dtype("autocast", ran_in, run.problem.dtype)
    if any(entry.stale for entry in forwards):
        yield rules.dtypes.one_big_autocast()
    scaled = run.calls("scale")
    if any(call.elements != 1 for call in scaled):
        yield rules.loss.outputs_scaled()
    losses = {entry.loss_dtype for entry in seen}
    if not any(entry.loss_autocast for entry in seen) and losses & HALF_DTYPES:
        yield rules.loss.loss_outside_autocast(half)
    for dtype in (losses | {call.dtype for call in scaled if call.dtype}) & HALF_DTYPES:
        yield rules.loss.loss_in_half(dtype_name(dtype))
    if any(entry.backward_autocast for entry in seen):
        yield rules.dtypes.backward_in_autocast(half)


# --- were all batches trained on, as they are, with the optimizer that was given?


def coverage(run: Run) -> Iterator[Finding]:
    """Find batches left out or changed, and another optimizer, or other weights, than were given."""
    given = [tensor for batch in run.problem.drawn[1] for tensor in batch]
    pairs = zip([tensor for batch in run.told["batches"] for tensor in batch], given, strict=True)
    if not all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in pairs):
        hint = "make new tensors instead of changing the batch in place"
        yield common_findings.inputs_changed("the loader's own tensors", hint)
    if any(call.arguments for call in run.calls("scaler.step")):
        yield rules.scaler.closure()
    yield from _batches(run)
    stepped = run.calls("optimizer.step")
    if not run.told["settings_kept"]:
        said = "the optimizer that was passed in has other settings after training (its learning rate, say)"
        hint = "leave them to whoever made it; scaling is undone by the scaler, not by the learning rate"
        yield failed("optimizer_changed", said, hint)
    if stepped and all(call.owner != run.told["optimizer"] for call in stepped):
        yield _optimizer_unused()
    if not torch.equal(run.start, run.seen[0].weights):
        said = "the weights were changed before the first batch: what the model had learned is lost, or "
        said += "rounded"
        yield failed("weights_reset", said, "train the model as it is passed in")


def _batches(run: Run) -> Iterator[Finding]:
    problem, bad = run.problem, dict(run.problem.poisoned)
    per_epoch = [i for i in range(len(problem.batch_sizes)) if i not in bad]
    wanted = per_epoch * problem.epochs
    seen = [i for i in run.order if not bad or (i is not None and i not in bad)]
    if None in seen:
        said = "the model was given other values than the loader yields: a batch was changed on its way to "
        said += "model(inputs)"
        yield failed("inputs_altered", said, "pass the inputs as they are; autocast does the casting")
    if len(seen) < len(wanted) and bad:
        yield rules.scaler.stops_at_overflow()
    size, fewer = len(seen) // problem.epochs, len(seen) < len(wanted)
    if len(seen) != len(wanted) or any(
        sorted(filter(lambda i: i is not None, seen[at : at + size])) != per_epoch  # type: ignore[type-var]
        for at in range(0, len(seen), size)
    ):
        passes, whole = len(run.told["seen"]), problem.epochs * len(problem.batch_sizes)
        more = ", and in an epoch some batches were used more often than others"
        yield failed(
            "batches_skipped" if fewer else "batches_repeated",
            f"{passes} training passes were made where {problem.epochs} epochs have {whole} batches"
            f"{'' if fewer or passes > whole else more}",
            "loop over the whole loader anew in each epoch: one forward, backward and step per batch",
        )


def _optimizer_unused() -> Finding:
    said = "the optimizer that was passed in never stepped: its settings, and any schedule, were ignored"
    return failed("optimizer_unused", said, "step the optimizer you were given, with scaler.step(optimizer)")


# --- updates, in the order of time: what goes wrong first is the cause of what follows


def _updates(run: Run) -> Iterator[Finding]:
    yield from coverage(run)
    yield from not_scaled(run)
    wrong: list[Window] = []
    for before, window in zip([None, *run.windows], run.windows, strict=False):
        yield from _backward_passes(window, before)
        ruined = (
            window.poisoned and not window.after.isfinite().all()
        )  # also by gradients that were kept aside
        if window.overflowed or window.left_out or window.hidden or ruined:
            yield from overflow(window)
        elif not window.poisoned:  # at a low scale nothing overflows: a huge, finite update is right there
            yield from _update(window, wrong)
    if wrong:  # and no window shows why
        yield _wrong_update(wrong[0])
    yield from scale_after_overflow(run.windows)
    if run.problem.poisoned:
        return
    if all(window.overflowed for window in run.windows):
        said = f"no step was taken: the scale begins at {run.windows[0].begun:g}, and every batch overflowed"
        yield failed("scale_too_large", said, "leave init_scale at its default, 65536")
    if all(call.owner != run.told["optimizer"] for call in run.calls("optimizer.step")):
        yield _optimizer_unused()
    if run.problem.loss_weight > TINY_WEIGHT:
        with autocast.cuda_rules():
            along, length = map(sum, zip(*(window.rounding() for window in run.windows), strict=True))
        if length and not _LEAST_ROUNDING < along / length < 2.0:
            half = dtype_name(run.problem.dtype)
            share = f"{along / length:.0%} of the rounding that {half} leaves in updates"
            yield rules.dtypes.no_autocast(f"by {share}, the forward pass", half)


def not_scaled(run: Run, most: float = 1.0) -> Iterator[Finding]:
    """Find a scaler that is left from another call, and a loss that went backward in fp16 as it is.

    Without a scaler's scale, a loss that was multiplied by up to ``most`` counts as not scaled, too.
    """
    window, scaled = run.windows[0], run.calls("scale")
    if scaled and scaled[0].clean > 0:
        yield failed(
            "scaler_kept",
            f"the scaler had counted {scaled[0].clean} steps before the first batch: it, or its state, is "
            "left from an earlier call, whose scale says nothing about this model",
            "make the scaler inside the function: default arguments, globals and attributes outlive the call",
        )
    most = most if window.scale == 1.0 else 1.0
    if run.problem.dtype != torch.float16 or not window.last.begun or not window.last.begun[-1] <= most:
        return
    if window.last.begun[-1] == 0.0:
        said = "backward reached the loss with a gradient of zero: it was clamped or replaced before backward"
        yield failed("loss_cut_off", said, "call backward on the scaled loss as loss_fn returned it")
    if window.scale > 1.0 and near(window.begun, window.scale):
        return  # a scale so small that the weight of a batch in its window undoes it
    if window.scale > 1.0:
        yield rules.loss.scaled_loss_discarded(f"{window.scale:g}")
    why = f"backward began with a gradient of {window.last.begun[-1]:g}"
    if any(not call.enabled for call in run.calls("GradScaler", "scale")):
        why = "the GradScaler is switched off in fp16: enabled=False, or made for a device that is not there"
    hint = "multiply the loss before backward: a torch.amp.GradScaler does, made once and enabled in fp16"
    if any(call.enabled and call.scale == 1.0 for call in window.called("scale")):
        why, hint = "the GradScaler multiplied it by 1", "leave init_scale at its default, 65536"
    yield rules.loss.loss_not_scaled(why, hint=hint)


def _backward_passes(window: Window, before: Window | None) -> Iterator[Finding]:
    """Find a loss that went backward twice or never, gradients of earlier windows, and another loss."""
    for entry in window.entries:
        if max(entry.filled) > 1:
            yield rules.loss.backward_twice()
        late = entry.late and not window.problem.one_backward
        if late or (not entry.begun and not window.left_out):
            yield _no_backward(window)
    filled = next((entry for entry in window.entries if any(entry.filled)), None)
    if filled is not None and filled.leftover:
        if before is not None and not before.called("optimizer.step", "scaler.step"):
            yield _too_rarely(window)
        yield rules.steps.no_zero_grad()
    yield from _other_loss(window)


def _too_rarely(window: Window) -> Finding:
    seen, size = window.run.seen, window.size
    calls = "optimizer.step", *(["scaler.step"] if window.problem.poisoned else [])  # which may skip it
    after = [str(i + 1) for i, entry in enumerate(seen) if entry.called(*calls)]
    every = f"each window of {size} batches" if size > 1 else "each batch"
    said = (
        f"of {len(seen)} batches, steps followed only {len(after)} ({', '.join(after)}): one belongs after "
        f"{every}"
    )
    return failed("steps_too_rarely", said, f"step inside the loop over the batches, {_WHATEVER_ITS_LOSS}")


def _other_loss(window: Window) -> Iterator[Finding]:
    """Compare the losses with those of the model's plain outputs and the loader's targets."""
    if window.poisoned or window.moved_within:
        return
    for entry, (right, _) in zip(window.entries, window.truths, strict=True):
        loss = entry.loss - window.problem.offset
        if math.isfinite(loss) and not math.isclose(loss, right, rel_tol=0.05):
            yield failed(
                "other_loss",
                f"the loss of a batch is {entry.loss:.4g}, where loss_fn(model(inputs), targets) is "
                f"{right + window.problem.offset:.4g}: loss_fn was given other outputs or targets (a softmax "
                "before a cross entropy, for one)",
                "call loss_fn on the model's outputs and the batch's own targets, as they are",
            )


_WHATEVER_ITS_LOSS = (
    "and do for every batch the same, whatever its loss and gradients (no continue where they are not "
    "finite): scaler.step leaves out a step whose gradients are not finite, scaler.update lowers the scale"
)


def _no_backward(window: Window) -> Finding:
    together = not window.problem.one_backward and any(entry.late for entry in window.run.seen)
    said = "a loss was computed but backward was never called on it"
    if together:
        said = "the losses of several batches went through one backward pass together: all graphs were kept"
    hint = "call scaler.scale(loss).backward() for every batch, right after its forward pass"
    return failed("losses_summed" if together else "no_backward", said, hint)


def overflow(window: Window) -> Iterator[Finding]:
    """Look at a window whose gradients overflowed: it must leave the weights alone."""
    lost = [i for i, entry in enumerate(window.entries[:-1]) if not math.isfinite(entry.loss)]
    thrown = any(
        window.entries[i].called("zero_grad") and any(e.begun for e in window.entries[:i]) for i in lost
    )
    if thrown and window.moved and window.after.isfinite().all():
        what = "a batch had a loss or gradients that were not finite, and the step was made without those "
        what += "before it"
        yield _window_cleared(what)
    if window.hidden:
        yield rules.scaler.overflow_hidden()
    alone = window.left_out and not window.overflowed and bool(window.after.isfinite().all())
    if alone or not (window.moved or window.moved_within):
        return
    if window.called("optimizer.step", directly=True):
        yield rules.scaler.step_bypasses_scaler("optimizer.step() was called directly")
    if window.given is None:
        yield rules.steps.weights_changed("a batch overflowed and its step was skipped")
    moved = rules.scaler.overflow_not_skipped("they are now inf or NaN, or moved by garbage")
    unseen = "scaler.step was called, and did not see it: call unscale_, step and update once, after the "
    unseen += "last backward pass of a step, with its gradients in p.grad as backward left them"
    yield replace(moved, hint=unseen) if window.called("scaler.step") else moved


def scale_after_overflow(windows: list[Window]) -> Iterator[Finding]:
    """Find a scale that does not fall after an overflow, or rises again otherwise than by its scaler."""
    for window, later in itertools.pairwise(windows):
        scales = [each.scale if each.scale > 1 else each.begun for each in (windows[0], window, later)]
        if later.scale <= 1:  # a shorter window may divide by its own number
            scales[2] *= len(later.entries) / later.size
        owners = [{call.owner for call in each.called("scale")} for each in (window, later)]
        another = bool(owners[1] - owners[0])
        if window.overflowed and later.last.begun and not scales[2] < scales[1]:
            if not another:
                never_lowered = rules.scaler.scale_never_lowered(scales[1], scales[2])
                by_hand = not any(owners)
                yield replace(never_lowered, hint=_LOWER_IT) if by_hand else never_lowered
            yield rules.scaler.scaler_recreated()
        updated, begun = window.called("updated"), later.called("scale")
        forgets = updated and begun and begun[0].clean < updated[-1].clean and scales[2] < scales[0]
        if another and scales[2] > scales[1] and owners[0]:
            yield rules.scaler.scaler_recreated()
        if another and forgets:
            counted = (
                f"it begins with a count of {begun[0].clean} steps without an overflow, where the old one "
            )
            counted += f"had reached {updated[-1].clean}, so that its scale grows later, or never"
            yield rules.scaler.scaler_recreated(counted, _ONE_SCALER)
        if updated and begun and later.scale > updated[-1].scale:
            yield rules.scaler.scale_reset(f"from {updated[-1].scale:g} back to {later.scale:g}")


# --- why an update is not the one it should be


def _update(window: Window, wrong: list[Window]) -> Iterator[Finding]:
    """Compare the update with the wanted one, and name the mistake behind a difference, or note it as
    ``wrong``.
    """
    made = window.called("optimizer.step")
    if window.moved_within:
        yield failed(
            "step_within_window",
            f"the weights changed within a window of {window.size} batches: the step must wait until the "
            "gradients of all of them are added up",
            "count the batches of a window from 1, anew in each epoch: step, update and zero_grad belong "
            "after its last one",
        )
    if len(made) > 1 and made[0].gradients.any() and not any(c.gradients.any() for c in made[1:]):
        yield rules.steps.step_without_backward()
    of_short = torch.stack([gradient for _, gradient in window.truths]).mean(0)
    if window.close(window.gradient) or window.close(of_short):
        return
    for explain in (_accumulation, no_step, _factor, _clipping, gradients):
        yield from explain(window)
    wrong.append(window)


def _wrong_update(window: Window) -> Finding:
    wanted = window.wanted(window.gradient)
    off = float((window.applied - wanted).norm() / wanted.norm())
    how_far = f"the applied gradient is {off:.1%} off"
    if not math.isfinite(off):
        how_far = "the weights became inf or NaN although no gradient overflowed"
    hint = "compare with the loop in fp32: forward, backward, one step, zero_grad, and nothing in between"
    return rules.steps.wrong_update("the update", how_far, hint)


def _clipping(window: Window) -> Iterator[Finding]:
    """Say how the gradient that was applied differs from one clipped to ``max_norm``."""
    limit, given, wanted = window.problem.max_norm, window.given, window.wanted(window.gradient)
    if limit is None or given is None or not given.any():
        return
    if bool((given - wanted).norm() <= window.problem.tolerance * wanted.norm()):
        return
    norm, found, left = float(window.gradient.norm()), float(given.norm()), window.left
    clips = window.called("clip")
    if float(given @ window.gradient) < 0.998 * norm * found:
        turned = left is not None and float(given @ left) < 0.998 * found * float(left.norm())
        if turned or any(clip.norm > clip.limit for clip in clips[:-1]):
            yield failed(
                "clipped_piecewise",
                "the direction of the gradient was changed, which clipping leaves as it is where it acts on "
                "all parameters together" + ", and on the sum of a window's batches" * (window.size > 1),
                "clip all parameters together by their total norm, once per update, after unscale_: "
                "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
            )
        return
    asked = [f"one of norm {clip.norm:.4g} to {clip.limit:.4g}" for clip in clips]
    unclipped = near(found, norm) and norm > limit
    told = (
        "clip_grad_norm_ was not called for this update" if unclipped else "code of your own made it so long"
    )
    if asked:
        told = f"clip_grad_norm_ was called to clip {', then '.join(asked)}"
    true = norm, norm * window.size, norm * window.begun
    if any(clip.norm and not any(near(clip.norm, each) for each in true) for clip in clips[:1]):
        told += ", by another norm than the 2-norm, or of some gradients only"
    yield failed(
        "not_clipped" if unclipped else "wrong_clipping",
        f"a gradient of norm {norm:.4g} was applied with norm {found:.4g}, where max_norm={limit:g} asks for "
        f"{float(wanted.norm()):.4g}: {told}",
        "in every dtype and for every update, a shorter last one too, once the gradients have their true "
        "size, clip all parameters in one call to max_norm itself, and leave a shorter gradient as it is; "
        "keep list(model.parameters()) if you keep them, for a generator is used up after one pass",
    )


def _window_cleared(what: str) -> Finding:
    hint = f"call optimizer.zero_grad() once per window, after its step, {_WHATEVER_ITS_LOSS}"
    return failed("window_cleared", f"zero_grad() was called within a window: {what}", hint)


def _accumulation(window: Window) -> Iterator[Finding]:
    """Name the mistake in adding up the gradients of a window."""
    if window.size == 1:
        return
    stepped, left = window.called("scaler.step"), window.last.left
    began = [call.name for call in window.last.calls[:1]]
    if stepped and began == ["scaler.step"] and left is not None and not same(stepped[-1].gradients, left):
        yield rules.steps.step_before_backward("the backward pass of the window's last batch")
    lost = any(any(entry.filled) and not entry.leftover for entry in window.entries[1:])
    if lost and any(entry.called("zero_grad") for entry in window.entries[:-1]):
        yield _window_cleared("what it held before is lost, unless it is kept elsewhere")
    begun = [entry.begun[-1] for entry in window.entries if entry.begun and entry.begun[-1]]
    if begun and max(begun) > 1.01 * min(begun):
        yield failed(
            "loss_divided_unevenly",
            f"the backward passes of one window began with {min(begun):.6g} and with {max(begun):.6g}: the "
            "sum is to hold each loss by the same scale and divisor",
            "scale every loss, and divide it by accumulation_steps, not by a count that grows",
        )
    if near(window.factor, window.size):
        said = f"the update is {window.size} times too large: the losses of the window were added up, not "
        said += "averaged"
        yield failed("loss_not_divided", said, "divide each loss by accumulation_steps before scaling it")


def no_step(window: Window) -> Iterator[Finding]:
    """Say why the weights did not move."""
    if window.moved or window.called("optimizer.step"):
        return
    if window.size > 1 and len(window.entries) < window.size:
        yield failed(
            "last_window_dropped",
            f"no step followed the {len(window.entries)} batches left over at the end of an epoch: their "
            "gradients are lost, or end up in a window of the next epoch",
            "step also where the loader is at its end and the window is not full",
        )
    yield _too_rarely(window) if window.run.calls("optimizer.step") else rules.steps.no_step()


def _factor(window: Window) -> Iterator[Finding]:
    """Name the mistake behind an update of a wrong length."""
    factor, scale, begun, size = window.factor, window.scale, window.begun, window.size
    if begun >= 2 and near(factor, begun):
        yield failed(
            "gradients_still_scaled",
            f"the update is {begun:g} times too large, exactly the loss scale: the gradients were applied "
            "without being unscaled",
            "call scaler.step(optimizer), which divides the gradients by the scale first",
        )
    weight = begun / scale
    if abs(weight - 1) > 0.01 and near(factor, weight):
        yield rules.loss.loss_rescaled(
            "the update",
            weight,
            f"each loss was multiplied by {weight / size:.4g} before backward, where {1 / size:.4g} is right",
            "multiply the loss by nothing but the scale and its weight in the mean of a window, which is "
            "1/accumulation_steps, however many batches the loader has",
        )


def gradients(window: Window) -> Iterator[Finding]:
    """Find parameters that were left out, and gradients or weights that were changed."""
    changes = (window.after - window.before).split(window.run.told["sizes"])
    untouched, given, left = sum(not bool(change.any()) for change in changes), window.given, window.left
    if untouched and not (given is not None and untouched == len(changes) and not given.any()):
        yield failed(
            "parameters_left_out",
            f"{untouched} of the {len(changes)} parameters did not change: they are frozen "
            "(requires_grad=False), or the step did not reach them",
            "train all parameters of the model with the optimizer that was passed in",
        )
    true, tolerance = window.gradient, window.problem.tolerance
    if left is not None and not bool((left / window.begun - true).norm() < tolerance * true.norm()):
        for each in window.run.windows:  # the losses of this one may be near by chance
            yield from _other_loss(each)
        backward, off = left / window.begun, float((left / window.begun - true).norm() / true.norm())
        rounded = bool((backward - window.in_half).norm() <= tolerance * window.in_half.norm())
        if rounded and (window.scale == 1.0 or near(window.begun, window.scale)):
            yield rules.loss.scale_too_small(window.begun, f"fp16 leaves gradients {off:.0%} off")
        said = "backward computed other gradients than those of loss_fn(model(inputs), targets), by "
        hint = "call backward on the scaled loss and nothing else: no penalty, no hooks that change gradients"
        yield failed("other_gradient", f"{said}{off:.3g} times their length", hint)
    wanted = window.wanted(true)
    rightly = given is not None and bool((given - wanted).norm() <= 0.1 * wanted.norm())
    if given is not None and rightly and bool((window.applied - given).norm() > 0.01 * given.norm()):
        yield rules.steps.weights_changed("the optimizer was given the right gradients")
    if left is not None and given is not None:
        unscale, unscaled = window.called("unscale_"), window.called("unscaled")
        if unscale and not same(changed := unscale[-1].gradients, left):
            factor = float(changed @ left / (left @ left))
            if bool((changed - factor * left).norm() <= 1e-3 * changed.norm()):  # the scale does not matter
                yield rules.steps.gradients_changed("the gradients", how=f": multiplied by {factor:.4g}")
            yield rules.steps.gradients_changed_before_unscale(f"{window.scale:g} times")
        if not same(given, unscaled[-1].gradients if unscaled else left):
            yield rules.steps.gradients_changed("the gradients")


# --- what a loop returns: one mean loss per epoch, as plain floats


def history(run: Run) -> Iterator[Finding]:
    """Find what is wrong with what the loop returned: its type, its length, its values."""
    told, problem = run.told["history"], run.problem
    values = told["values"]
    if told["tensors"]:
        why, advice = "floats were asked for", "convert at the end: (total / n).item(), one float per epoch"
        if any(told["tensors"]):
            why, advice = "each of them keeps the whole graph of its batch in memory", _ADVICE
        yield failed("history_of_tensors", f"the history contains tensors: {why}", advice)
    if values is None:
        yield _wrong_type(f"one with {told['strange']}" if told.get("strange") else told["described"])
    if len(values) != problem.epochs:
        of = f"{problem.epochs} epochs of {len(problem.batch_sizes)} batches"
        said = f"the history has {len(values)} entries after training for {of}: one per epoch was asked for"
        yield failed("history_length", said, _ADVICE)
    sizes = torch.tensor(problem.batch_sizes, dtype=torch.float64)
    losses = torch.tensor([entry.loss for entry in run.seen], dtype=torch.float64)
    if len(losses) == problem.epochs * len(sizes) and bool(losses.isfinite().all()):
        seen = torch.tensor(values, dtype=torch.float64)
        yield from _wrong_values(run, seen, losses.reshape(problem.epochs, -1), sizes)


def _wrong_type(seen: str) -> Finding:
    return common_findings.wrong_return_type("a list of floats was", seen, _ADVICE)


def _near(seen: Tensor, expected: Tensor) -> bool:
    return bool(((seen - expected).abs() <= _CLOSE * expected.abs()).all())


def _wrong_values(run: Run, seen: Tensor, losses: Tensor, sizes: Tensor) -> Iterator[Finding]:
    """Compare the history with the mean losses (epochs, batches), and with what else it may hold."""
    mean, by_sample = losses.mean(1), (losses * sizes).sum(1) / sizes.sum()
    if _near(seen, mean) or _near(seen, by_sample):
        return
    at = int((~((seen - mean).abs() <= _CLOSE * mean.abs())).nonzero()[0])  # of NaN, too
    shown, ratio = f"{float(seen[at]):.5g} instead of {float(mean[at]):.5g}", float(seen[0] / mean[0])
    scales = [entry.begun[-1] if entry.begun else 1.0 for entry in run.seen]
    if min(scales) > 8 and 0.4 * min(scales) < ratio < 2 * max(scales):
        yield failed(
            "history_scaled",
            f"the history holds the scaled loss: {shown}; it is about {ratio:.5g} times too large, and jumps "
            "whenever the scale changes",
            "log the loss as loss_fn returned it: not scaler.scale(loss).item(), and after loss = "
            "scaler.scale(loss) not loss.item() either, for the name means the scaled loss from there on",
        )
    suspects = {
        "the sum of the batch losses": losses.sum(1),
        "the loss of the last batch": losses[:, -1],
        "that mean divided by accumulation_steps": mean / run.problem.accumulation_steps,
        "a total that is not reset at the start of each epoch": mean.cumsum(0),
    }
    what = next((f" but {what}" for what, theirs in suspects.items() if _near(seen, theirs)), "")
    said = f"epoch {at + 1} has {shown}"
    hint = (
        "collect each batch's loss.item() before it is divided, or anything is added to it, and return one "
    )
    hint += "mean per epoch, as a list of floats"
    yield failed("history_not_mean", f"the history is not the mean loss of each epoch{what}: {said}", hint)


# --- what a report says beside


# what numbers or an exception say, and not why: where the audit knows a cause, that is said instead
_OPEN = {
    "raised",
    "overflow_not_skipped",
    "scale_never_lowered",
    "weights_changed",
    "wrong_update",
    "other_gradient",
    "gradients_changed",
    "gradients_changed_before_unscale",
    "clipped_piecewise",
    "not_clipped",
    "wrong_clipping",
    "steps_too_rarely",
    "no_step",
}
_SYMPTOMS = {"always_overflows", "gradients_all_zero", "weights_broken"}


def audited(worker: bed.Worker, given: dict[str, Any], train: str) -> list[list[str]]:
    """Let the audit watch the learner's code as ``train`` calls it there: code, message, hint, line."""
    seen: list[list[str]] = worker.call(f"{_THERE}:audited", bed.Handle(0), given, train)
    return seen


def with_audit(root: Finding, seen: list[list[str]], when: str = "", line: str = "") -> Finding:
    """Let the audit say why, where it can, and in which line it has seen a mistake too.

    ``when`` says on which problem, ``line`` where PyTorch raised an exception.
    """
    causes = [each for each in seen if each[0] not in _SYMPTOMS]
    if root.code in _OPEN and causes:
        code, message, hint, _ = causes[0]
        message += (f" ({when})" if when else "") + (f" [PyTorch noticed in {line}]" if line else "")
        return failed(code, message, hint)
    line = next((line for code, _, _, line in seen if code == root.code), "")
    if line and "line " not in root.message:
        return replace(root, message=f"{root.message} [{line}]")
    return root


def _seen_as_well(seen: list[list[str]], said: set[str]) -> Iterator[Finding]:
    """Remark on what the audit names in a loop whose numbers are right: no ground to refuse it."""
    for code, message, hint, line in seen:
        if code not in said | _SYMPTOMS:
            yield note(code, f"{message} [{line}]" if line else message, hint)


def _what_holds(gradient: str, runs: list[Run]) -> Iterator[Finding]:
    asked = {spelling for run in runs for spelling in run.told["cuda"]}
    on = common_findings.in_place_of_cuda(asked, "autocast", "cpu")
    scaler = common_findings.in_place_of_cuda(asked, "GradScaler", "cpu")
    said = f"the forward ran under autocast{on} in the dtype asked for, the loss was not in half precision, "
    yield passed("precision", f"{said}backward ran outside autocast")
    said = f"in fp16 backward started from the scaled loss{scaler}, and very small gradients survived"
    yield passed("scaling", said)
    yield passed("updates", f"every update equals plain SGD on the {gradient}")
    lowered = "" if _left_out(runs) else ", the scale was lowered,"
    yield passed("overflow", f"batches that overflowed were skipped{lowered} and training went on")
    yield passed("history", "the history holds the mean loss of each epoch")


def _left_out(runs: list[Run]) -> list[Window]:
    """List the windows in which a batch never reached a backward pass, since its loss was not finite.

    One of which none did may have told the scaler: the others are enough.
    """
    scaled = [run for run in runs if any(call.enabled for call in run.calls("scale"))]
    windows = [window for run in scaled for window in run.windows if window.left_out]
    return [each for each in windows if each.size == 1 or any(entry.begun for entry in each.entries)]


def _remarks(runs: list[Run]) -> Iterator[Finding]:
    """Remark on style; nothing of it is wrong."""
    for spelling in sorted({each for run in runs for each in run.told["old_spellings"]}):
        yield rules.scaler.deprecated_api(spelling)
    cuda = {spelling for run in runs for spelling in run.told["cuda"]}
    if cuda:
        unnamed = cuda == {"GradScaler()"}
        yield common_findings.cuda_replaced(
            "device_type",
            f"PyTorch would only warn and switch {'' if unnamed else 'autocast and '}the scaler off",
            "pass device_type on to autocast, GradScaler and .to()",
            "`GradScaler()` without a device means cuda" if unnamed else common_findings.ASKS_FOR_CUDA,
        )
    if any(entry.input_dtype in HALF_DTYPES for run in runs for entry in run.seen):
        yield rules.dtypes.inputs_cast("the inputs were")
    in_bfloat16 = [run for run in runs if run.problem.dtype == torch.bfloat16]
    if any(call.enabled for run in in_bfloat16 for call in run.calls("scale")):
        yield rules.scaler.scaler_with_bfloat16()
    if not any(run.calls("scale") for run in runs):
        yield note(
            "own_scaling",
            "the loss was scaled by code of your own: right, and torch.amp.GradScaler does the same",
        )
    if left_out := _left_out(runs):
        yield rules.scaler.batch_left_out(", its window has a batch less" if left_out[0].size > 1 else "")
    kind = runs[0].told["history"]["kind"]
    if kind != "list":
        yield note("history_not_a_list", f"a list of floats was asked for, this is a {kind}", _ADVICE)


def _scale(entry: Entry, steps: int) -> float:
    """Return by how much a batch's gradients were scaled.

    The gradient that backward began with tells, whoever scaled. Where gradients are accumulated it also holds
    the batch's weight in its window, and a loss in fp16 makes inf of it: there the scaler is asked, if one
    was used.
    """
    if not entry.begun:
        return math.nan
    scales = [call.scale for call in entry.called("scale") if call.enabled]
    unclear = steps > 1 or not math.isfinite(entry.begun[-1])
    return scales[0] if unclear and scales else entry.begun[-1] * steps
