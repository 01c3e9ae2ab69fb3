"""Mistakes with what goes on beside the steps: schedules, averages, checkpoints, logs, and other devices."""

from __future__ import annotations

from collections import Counter

from amp_lessons._base.text.words import counted
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.numbers import resembles
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake, remark
from amp_lessons.audit.rules.rule import AtTheEnd, Rule, Verdicts, likely, on, seen

NO_LIMIT = 1e6  # a max_norm that is only there for the norm that clipping returns


@mistake(
    "the learning rate's schedule went on although the step was skipped",
    lesson="03",
    costs="beside",
    section="skip",
)
def schedule_on_skipped_step(advanced: int, steps: int) -> Worded:
    return (
        f"the learning rate's schedule was advanced {counted(advanced, 'time')} for {counted(steps, 'step')} "
        "of the optimizer, also where a batch had overflowed and the scaler skipped the step: it runs "
        "ahead of them",
        "advance it only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


class _Schedules(Rule):
    """A schedule that goes on with every step of its optimizer, and did so when one was skipped."""

    def __init__(self) -> None:
        self.advanced: Counter[int] = Counter()
        self.steps_before: Counter[int] = Counter()  # steps of the optimizer when it was last advanced

    @on(events.ScheduleStepped)
    def advance(self, event: events.ScheduleStepped, past: Past) -> Verdicts:
        optimizer = past.steps.known(event.optimizer)
        asked = past.steps.asked[optimizer]
        one_step = asked - self.steps_before[event.schedule] == 1
        self.advanced[event.schedule] += 1
        self.steps_before[event.schedule] = asked
        if one_step and past.steps.just_skipped(optimizer) and not event.in_step:
            yield seen(schedule_on_skipped_step(self.advanced[event.schedule], past.steps.made[optimizer]))


@mistake(
    "the averaged weights went on although the step was skipped", lesson="03", costs="beside", section="skip"
)
def average_on_skipped_step(advanced: int, steps: int) -> Worded:
    return (
        f"the averaged weights were updated {counted(advanced, 'time')} for {counted(steps, 'step')} of the "
        "optimizer: where the scaler skipped the step they took in old weights once more, and their count "
        "runs ahead",
        "update them only where the step was made: scaler.update() lowers the scale after a skipped one",
    )


@on(events.Averaged)
def _(event: events.Averaged, past: Past) -> Verdicts:
    optimizer, advanced = past.steps.known(event.optimizer), past.steps.times_averaged(event)
    first = event.step not in past.steps.averaged[optimizer]  # once a step, not once a tensor
    if event.in_step:  # which is made
        return
    if first and past.steps.just_skipped(optimizer) and (advanced > 1 or not event.resembles):
        finding = average_on_skipped_step(advanced, past.steps.made[optimizer])
        yield likely(finding, resembles(advanced)) if event.resembles else seen(finding)


@mistake("checkpoints lack the scaler's state", only_audit=True, costs="beside", section="resume")
def scaler_not_saved(before: int = 0, since: int = 0) -> Worded:
    """Report a checkpoint with an optimizer's state and without the scaler's.

    So many steps were skipped ``before`` it was written and ``since``.
    """
    skipped = f"{since} skipped here since" if since else f"{before} skipped here until then"
    again = f", and skips steps until it has fallen again ({skipped})" if before or since else ""
    return (
        "checkpoints were written with the optimizer's state and without the scaler's: training that goes on "
        f"from them starts again at the first scale{again}",
        'add "scaler": scaler.state_dict() to the checkpoint, and load it with scaler.load_state_dict',
    )


class _Saved(Rule):
    def __init__(self) -> None:
        self.first: events.Saved | None = None  # with an optimizer
        self.scaler = False

    @on(events.Saved)
    def save(self, event: events.Saved, past: Past) -> None:
        self.scaler = self.scaler or event.scaler
        if event.optimizer and self.first is None:
            self.first = event

    @on(AtTheEnd)
    def never_saved(self, past: Past) -> Verdicts:
        if self.first is not None and not self.scaler and past.steps.scaler_of:
            since = sum(step >= self.first.step for step in past.steps.skipped)
            skipped = past.steps.asked[None] - past.steps.made[None]
            yield seen(scaler_not_saved(skipped - since, since), about=self.first)


@mistake(
    "a number was read while it was multiplied by the loss scale",
    lesson="03",
    only_audit=True,
    costs="beside",
    section="clip",
)
def logs_scaled(what: str) -> Worded:
    return (
        f"{what} was read while it was multiplied by the loss scale: it jumps whenever the scale changes",
        "log loss.item() before scaling, and gradients after scaler.unscale_(optimizer)",
    )


@on(events.ScaledRead)
def _(event: events.ScaledRead, past: Past) -> Verdicts:
    yield seen(logs_scaled(event.what))


@on(events.Clipped)
def _(event: events.Clipped, past: Past) -> Verdicts:
    if event.scaled and event.limit / (event.scale or 1.0) > NO_LIMIT and not event.by_value:
        why = f"clip_grad_norm_ was called with max_norm={event.limit:g}, which clips nothing"
        yield likely(logs_scaled("the gradient norm that it returns"), why)


@remark(
    "mixed precision was asked for on a device that is not there", lesson="02", only_audit=True, costs="gain"
)
def device_not_here(what: str, device: str) -> Worded:
    return (
        f"{what} was made for {device!r}, which this machine does not have: PyTorch has switched it off, and "
        "what depends on it cannot be judged here",
        "pass the device that the model is on, as in torch.autocast(device.type) and GradScaler(device.type)",
    )


@on(events.ScalerMade)
@on(events.AutocastEntered)
def _(event: events.ScalerMade | events.AutocastEntered, past: Past) -> Verdicts:
    if event.disabled_for:
        what = "the gradient scaler" if isinstance(event, events.ScalerMade) else "autocast"
        yield seen(device_not_here(what, event.disabled_for))
