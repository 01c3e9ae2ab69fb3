"""What PyTorch refuses: one exception may come of several mistakes, which the calls before it tell apart."""

from __future__ import annotations

from amp_lessons.audit.findings import Finding
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules import dtypes, loss, scaler, steps
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rule import Rule, Verdicts, on, seen


class _Refusals(Rule):
    def __init__(self) -> None:
        self.unscaled_at: events.Line = None  # the last backward pass whose loss no scaler had scaled
        self.stepped_directly: events.Line = None  # an optimizer whose gradients a scaler had scaled, last

    @on(events.Backward)
    def backward(self, event: events.Backward, past: Past) -> None:
        if event.scaler is None:
            self.unscaled_at = event.line

    @on(events.StepAsked)
    def step(self, event: events.StepAsked, past: Past) -> None:
        if event.scaled_by is not None and event.scaler is None:
            self.stepped_directly = event.line

    @on(events.Refused)
    def refuse(self, event: events.Refused, past: Past) -> Verdicts:
        mended_at = {
            "half_parameters": event.cast_at,
            "gradients_cleared": event.cleared_at,
            "loss_not_scaled": self.unscaled_at,
            "optimizer_step_direct": self.stepped_directly,
        }
        for fragment, meaning in _MEANINGS.items():
            if fragment in event.message:
                finding = meaning(event, past)
                yield seen(finding, mended_at.get(finding.code))
                return


def _unscaled_again(event: events.Refused, past: Past) -> Finding:
    first, last = (_place(called, "unscale_") for called in (event.called, event.called[::-1]))
    between = event.called[first + 1 : len(event.called) - last - 1]
    if "scaler.step" not in between and "zero_grad" in between:  # nothing is added up: an iteration has ended
        return scaler.no_update()
    if event.called.count("unscale_") > 1 or ("unscale_" in event.called and "update" in event.called_before):
        every_batch = event.called.count("backward") > 1 and "scaler.step" not in event.called
        if every_batch and event.called_before.count("backward") != 1:
            return scaler.update_every_batch()
        return scaler.no_update() if every_batch else steps.unscale_twice()
    return scaler.no_update()


def _place(called: tuple[str, ...], name: str) -> int:
    return called.index(name) if name in called else len(called)


def _unscaled_after_step(event: events.Refused, past: Past) -> Finding:
    return steps.unscale_after_step() if "scaler.step" in event.called else scaler.no_update()


def _stepped_again(event: events.Refused, past: Past) -> Finding:
    if event.called.count("scaler.step") > 1:
        return steps.double_step("scaler.step(optimizer) was called")
    return scaler.no_update()


def _before_backward(event: events.Refused) -> Finding:
    return steps.unscale_without_gradients() if "unscale_" in event.called else steps.step_before_backward()


def _nothing_to_check(event: events.Refused, past: Past) -> Finding:
    if "backward" not in event.called:
        return _before_backward(event)
    if event.again:
        return steps.step_without_backward()
    if "zero_grad" in event.called[event.called.index("backward") :]:
        return steps.gradients_cleared()
    return scaler.no_gradients()


def _nothing_to_learn(event: events.Refused, past: Past) -> Finding:
    if event.called.count("update") > 1:
        last, before, *_ = (i for i in reversed(range(len(event.called))) if event.called[i] == "update")
        went_on = "autocast" in event.called[before:last]
        return scaler.update_without_step() if went_on else scaler.update_twice()
    if "optimizer.step" in event.called:
        return steps.optimizer_step_direct(None)
    if event.called.count("backward") > 1:
        return scaler.update_every_batch()
    if "scaler.step" not in event.called and "scaler.step" in event.called_before:
        return scaler.update_without_step()
    return scaler.update_before_step()


def _never_scaled(event: events.Refused, past: Past) -> Finding:
    backward = past.last(events.Backward)
    if "backward" not in event.called:
        return _before_backward(event)
    if backward is not None and backward.factor > 1.0:
        return loss.scaled_by_hand(backward.factor)
    return loss.loss_not_scaled(
        "there is a GradScaler, but this loss was not multiplied by scaler.scale(loss)"
    )


def _graph_gone(event: events.Refused, past: Past) -> Finding:
    return loss.backward_twice() if event.again else loss.graph_used_twice()


_MEANINGS = {  # an exception's words, and which mistake it means
    "unscale_() has already been called": _unscaled_again,
    "unscale_() is being called after step()": _unscaled_after_step,
    "step() has already been called": _stepped_again,
    "No inf checks were recorded for this optimizer": _nothing_to_check,
    "No inf checks were recorded prior to update": _nothing_to_learn,
    "Attempting to unscale FP16 gradients": lambda event, past: dtypes.half_parameters(),
    "_scale is None": _never_scaled,
    "element 0 of tensors does not require grad": lambda event, past: loss.no_graph(),
    "backward through the graph a second time": _graph_gone,
}
