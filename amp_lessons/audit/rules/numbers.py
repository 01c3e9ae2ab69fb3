"""Numbers that 16 bits cannot hold, and what is left of them: averages, positions, sums, eps, masks, inf."""

from __future__ import annotations

from amp_lessons import formats
from amp_lessons._base.text.words import counted
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake
from amp_lessons.audit.rules.rule import HALVES, Verdicts, dtype_name, likely, on, seen


@mistake(
    "the moving average is rounded to 16 bits in every step", lesson="01", costs="rounded", section="vanish"
)
def average_stuck(came: str, half: str, what: str = "the average is") -> Worded:
    return (
        f"{came}: {what} rounded to {half} in every step, and what is left of an update after (1 - decay) is "
        "too small to survive that",
        "keep the average, and decay, in more digits than the weights have",
    )


@on(events.Averaged)
def _(event: events.Averaged, past: Past) -> Verdicts:
    half, advanced = dtype_name(event.dtype), past.steps.times_averaged(event)
    if half not in HALVES or (event.resembles and advanced < 2):
        return
    finding = average_stuck(f"a moving average of the weights is kept in {half}", half)
    moved = "its numbers still moved" if event.stuck is False else "whether it still moves was not seen"
    doubts = [resembles(advanced)] if event.resembles else []
    doubts += [] if event.stuck else [f"by its dtype; {moved}"]
    yield likely(finding, "; ".join(doubts)) if doubts else seen(finding)


def resembles(steps: int) -> str:
    """Say why what is taken for an average may be another thing."""
    return f"in {steps} steps its numbers took in a part of the weights, which may be something else"


@mistake("several positions are rounded to one", lesson="01", costs="rounded", section="predict")
def positions_rounded(seen: str, lacking: str, effect: str = "several of them become one") -> Worded:
    return (
        f"{seen}: the positions are rounded to a format that has no {lacking}, and {effect}",
        "compute with the positions in fp32 from the beginning; cos and sin may be cast",
    )


@on(events.Arithmetic)
def _(event: events.Arithmetic, past: Past) -> Verdicts:
    if event.code == "positions_rounded":
        half, facts = dtype_name(event.dtype), event.facts
        if "off" in facts:
            which = f"{facts['was']:.6g} became {facts['is']:g} in {half}, and cos or sin was taken of it"
            turned = f"the angle is off by {facts['off']:.2g} radians"
            yield seen(positions_rounded(which, "number nearer to it", turned))
            return
        which = f"{facts['count']:g} whole numbers became {facts['distinct']:g} in {half}"
        yield seen(positions_rounded(which, f"odd numbers above {_counted_to(half):g}"))


@mistake("a count in 16 bits stops growing", lesson="01", costs="beside", section="predict")
def metric_stops(seen: str, half: str, stop: float) -> Worded:
    """Report a sum in ``half`` precision that takes no more ones from ``stop`` on; ``seen`` says where."""
    return (
        f"{seen}: a sum in {half} takes no more ones from {stop:,.0f} on, where they are half of its "
        "spacing, and stands still while the number of samples grows",
        "sum in fp32, in integers, or in Python's own numbers",
    )


@on(events.Arithmetic)
def _(event: events.Arithmetic, past: Past) -> Verdicts:
    if event.code == "metric_stops":
        half, facts = dtype_name(event.dtype), event.facts
        stopped = f"a sum has come to {facts['total']:g}, and adding {facts['term']:g} leaves it there"
        yield seen(metric_stops(stopped, half, _counted_to(half)))


def _counted_to(half: str) -> float:
    """Return up to where a format has all whole numbers."""
    return 2 / formats.FORMATS[half].epsilon


@mistake(
    "a metric was rounded to 16 bits on its way",
    lesson="01",
    costs="beside",
    only_audit=True,
    section="predict",
)
def metric_rounded(seen: str, how: str) -> Worded:
    return (f"{seen}: {how}", "sum in fp32, in integers, or in Python's own numbers")


@on(events.Arithmetic)
def _(event: events.Arithmetic, past: Past) -> Verdicts:
    if event.code == "metric_rounded":
        half, facts = dtype_name(event.dtype), event.facts
        come_to = f"a sum in {half} has come to {facts['total']:g}, and its terms to {facts['exact']:g}"
        how = f"each time a term is added, the sum is rounded to the nearest number in {half}"
        yield seen(metric_rounded(come_to, how))


@mistake("eps is rounded to zero, or away", lesson="02", costs="rounded")
def eps_vanishes(seen: str, how: str, hint: str = "add eps where it is a number: in fp32") -> Worded:
    return (f"{seen}: {how}", hint)


@on(events.Arithmetic)
def _(event: events.Arithmetic, past: Past) -> Verdicts:
    if event.code == "eps_vanishes":
        constant, half = event.facts["constant"], dtype_name(event.dtype)
        near, finding = 0, _rounded_to_zero(constant, half)
        if constant > _HALF:
            below = 1 - formats.FORMATS[half].epsilon / 2
            how = f"it is rounded to 1 in {half}, whose next number is {below:g}"
            near, finding = 1, eps_vanishes(f"{constant:.12g} is to keep below 1", how, _BELOW_ONE)
        yield likely(finding, f"what it protects may never come near {near}")


@on(events.StepAsked)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    if event.eps_vanishes is not None:
        eps, dtype = event.eps_vanishes
        yield seen(_rounded_to_zero(eps, dtype_name(dtype)))


_HALF = 0.5
_BELOW_ONE = "clamp in fp32, or take the logarithm of it otherwise: F.logsigmoid(-x) for log(1 - sigmoid(x))"


def _rounded_to_zero(eps: float, half: str) -> Finding:
    smallest = formats.FORMATS[half].smallest_subnormal
    how = f"it is rounded to 0 in {half}, whose smallest number is {smallest:.1g}"
    return eps_vanishes(f"{eps:g} is to protect from 0", how)


@mistake("a query without a key gives NaN", lesson="02", costs="stops", section="deeper-sdpa")
def masked_row_nan(
    seen: str,
    how: str = "-1e9 is beyond fp16, where it becomes -inf, and softmax of nothing but -inf subtracts -inf "
    "from -inf: NaN",
    hint: str = "mask with a number that the dtype has, or with a bool mask, and give such rows zeros",
) -> Worded:
    """Report a mask whose number is -inf in 16 bits; ``seen`` says where, ``how`` what comes of it."""
    return (f"{seen}: {how}", hint)


@on(events.Arithmetic)
def _(event: events.Arithmetic, past: Past) -> Verdicts:
    if event.code == "masked_row_nan":
        half = dtype_name(event.dtype)
        chosen = f"{event.facts['constant']:.3g} was put into {half} numbers"
        how = f"it is beyond {half}, where it becomes -inf, and softmax of nothing else is NaN"
        yield likely(masked_row_nan(chosen, how), "a row without a single open place would show it")


@mistake(
    "a query without a key gives an average of what is hidden",
    lesson="02",
    unseen="only an exercise asks for it",
    section="deeper-sdpa",
)
def masked_row_not_zero(seen: str, hint: str) -> Worded:
    return f"{seen}; of scores that are all equal, softmax gives every key the same weight", hint


@mistake(
    "a buffer that forward passes write is inf or NaN, and the weights are not",
    lesson="06",
    costs="beside",
    section="heal-nan-in-tests-seen",
)
def buffers_not_finite(seen: str, statistics: bool = True) -> Worded:
    """Report buffers that are inf or NaN; ``seen`` says which, ``statistics`` that they are a norm's."""
    later = (
        "training takes mean and variance of each batch and looks sound, evaluation takes these, and is NaN"
        if statistics
        else "whatever is computed with them is not finite either"
    )
    return (
        f"{seen}, and all weights are finite: a forward pass wrote it there, and skipping the step after it "
        f"takes nothing of that back; {later}",
        "put back what they held before a batch whose step is skipped, or keep inf from them: what overflows "
        "before them belongs in fp32; a norm's statistics that are lost can be estimated anew",
    )


@on(events.BuffersBroken)
def _(event: events.BuffersBroken, past: Past) -> Verdicts:
    first, *others = event.names
    which = f"`{first}` and {counted(len(others), 'other buffer')} are" if others else f"`{first}` is"
    after = ", since a step that was skipped" if event.skipped else ""
    yield seen(buffers_not_finite(f"{which} inf or NaN{after}", event.statistics))


@mistake("the weights themselves are inf or NaN", lesson="06", only_audit=True, section="own-steps")
def weights_broken(
    which: str,
    step: str = "a step",
    gradients: str = "were not finite, or that were too large",
    hint: str = "",
) -> Worded:
    """Report weights that are not finite; ``which`` names the layers that own them.

    A ``step`` has done it, whose ``gradients`` were as that says.
    """
    return (
        f"weights of {which} are inf or NaN: {step} was made with gradients that {gradients}, and no later "
        "step takes that back",
        hint
        or "go back to a checkpoint whose weights are finite, and audit the training from there: it names "
        "the first inf or NaN, and steps that were made past the scaler",
    )


@on(events.WeightsBroken)
def _(event: events.WeightsBroken, past: Past) -> Verdicts:
    first, *others = event.layers
    which = f"`{first}`" + (f" and {counted(len(others), 'other layer')}" if others else "")
    more: dict[str, str] = {}
    if event.in_backward and not past.steps.unchecked:  # else the scale may have done it
        more["gradients"] = "were inf or NaN, although its loss was finite: they came up in its backward pass"
        more["hint"] = (
            "look for what has no finite gradient at this batch: a root, a norm, a division or a logarithm "
            "at 0, which wants an eps inside or a clamp; go on from a checkpoint before it"
        )
    yield seen(weights_broken(which, f"step {event.step + 1}", **more))
