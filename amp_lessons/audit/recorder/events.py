"""A training as events in order. Each holds the line of the person's own code that led to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rules name events where reports of ranks are joined, without PyTorch
    import torch

    from amp_lessons.audit.recorder.gradients import Added, Change
    from amp_lessons.audit.recorder.graph import Inside, PartInHalf

Line = tuple[str, int] | None
LARGE_NUMBER = 64.0  # what divides by as much may unscale, where the scale itself is not known


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened: before which optimizer step, from 0, and on which line."""

    step: int
    line: Line


@dataclass(frozen=True, kw_only=True)
class ScalerMade(Event):
    """A gradient scaler was made, with a first ``scale``.

    ``disabled_for`` names the device it was meant for and that is not here.
    """

    scaler: int
    enabled: bool
    disabled_for: str = ""
    scale: float | None = None


@dataclass(frozen=True, kw_only=True)
class ScalerLoaded(Event):
    """A scaler was given a state, as after a checkpoint; ``raised`` says that its scale was lower before."""

    scaler: int
    raised: bool


@dataclass(frozen=True, kw_only=True)
class OldSpelling(Event):
    """Something was made by a deprecated name, ``torch.cuda.amp.autocast`` for one."""

    name: str


@dataclass(frozen=True, kw_only=True)
class AutocastEntered(Event):
    """An autocast context began. ``disabled_for`` names the device it was meant for and that is not here."""

    device: str
    dtype: torch.dtype
    enabled: bool
    disabled_for: str = ""


@dataclass(frozen=True, kw_only=True)
class ForwardSeen(Event):
    """Modules that own parameters have run since the last step: with autocast on, or without.

    ``evaluating`` names what was switched off for it, "" where nothing was; ``eval`` was last called at
    ``evaluating_since``.
    """

    with_autocast: int
    without: int
    evaluating: str
    evaluating_since: Line = None


@dataclass(frozen=True, kw_only=True)
class StaleForward(Event):
    """A layer computed with weights from before the last step, out of autocast's cache."""

    module: str


@dataclass(frozen=True, kw_only=True)
class LossScaled(Event):
    """``scaler.scale`` was given a loss.

    ``made_by`` names the last operations on it, the last one first; ``outside`` says that it was computed
    after the last autocast context had ended. It was ``made_at`` one line and ``cast_at`` another, as far as
    that was heard.
    """

    scaler: int
    enabled: bool
    dtype: torch.dtype | None
    elements: int
    made_by: tuple[str, ...]
    outside: bool
    made_at: Line = None
    cast_at: Line = None


@dataclass(frozen=True, kw_only=True)
class Backward(Event):
    """One backward pass into ``.grad``.

    ``scaler`` is the one whose scale the loss was multiplied by, None without; ``factor`` is the number that
    the last operation multiplied the loss by, times the one that backward was given, 1 for none, ``again``
    says that it went backward before, ``cast`` that something near it was cast to another dtype, ``in_fp32``
    that surely nothing of it is in 16 bits, which is asked of what goes backward beside scaled losses.
    ``autocast`` is the dtype that it ran under, None where a framework held the context open, which a script
    cannot leave; autocast was entered in those of ``forward`` since the last step. ``reached`` holds the
    optimizers whose parameters got gradients. ``scalers_called`` holds "scale" where a scaler was given a
    loss since the last step. ``loss`` is the loss, unscaled, where reading it costs nothing. It was
    ``made_at`` one line and ``cast_at`` another. ``averaged`` says that it is a mean as it is,
    ``part_unscaled`` that a part of it was added unscaled, ``summed`` in which 16-bit dtype the gradients
    were added to others. ``inside`` is what its graph is made of and ``part_in_half`` a part of it that
    autocast would have kept in fp32, where this step is looked at closely.
    """

    dtype: torch.dtype
    made_by: tuple[str, ...]
    outside: bool
    scaler: int | None
    factor: float
    again: bool
    cast: bool
    autocast: torch.dtype | None
    forward: frozenset[torch.dtype]
    reached: frozenset[int]
    scalers_called: frozenset[str] = frozenset()
    loss: float | None = None
    made_at: Line = None
    cast_at: Line = None
    averaged: bool = False
    in_fp32: bool = False
    part_unscaled: bool = False
    summed: torch.dtype | None = None
    inside: Inside | None = None
    part_in_half: PartInHalf | None = None

    @property
    def in_fp16(self) -> bool:
        """Whether it went through what autocast computed in fp16."""
        return "torch.float16" in map(str, self.forward)

    @property
    def by_hand(self) -> frozenset[torch.dtype]:
        """The dtypes in 16 bits that it went through without autocast, of weights that are not."""
        inside = self.inside
        if inside is None or self.forward or inside.compiled or (inside.weights and not inside.masters):
            return frozenset()
        return inside.halves


@dataclass(frozen=True, kw_only=True)
class ScaledPenalty(Event):
    """Gradients of a scaled loss, taken on this line, are part of a loss, not divided by the ``scale``."""

    scale: float | None


@dataclass(frozen=True, kw_only=True)
class GradientsMixed(Event):
    """Gradients about to be used were ``added`` to others.

    ``cleared`` says that gradients that a step had applied were cleared before; where two scalers have scaled
    them, ``scales`` are theirs, None where one is not known.
    """

    added: Added
    cleared: bool = False
    scales: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MadeFinite(Event):
    """``nan_to_num`` was called on a gradient that is still scaled, and is known to have been ``broken``."""

    broken: bool


@dataclass(frozen=True, kw_only=True)
class Clipped(Event):
    """Gradients were clipped: by their norm, or value by value; ``scaled`` says they were still scaled."""

    by_value: bool
    scaled: bool
    scale: float | None
    limit: float
    after_step: bool = False


@dataclass(frozen=True, kw_only=True)
class Unscaled(Event):
    """A scaler divided the gradients of an optimizer by its scale, ``by_hand`` outside ``scaler.step``.

    ``change`` says what had been done to them since backward, ``clipped`` that this was clipping. Somebody
    divided them by the scale on the line ``undone_at``.
    """

    scaler: int
    optimizer: int
    change: Change
    clipped: bool
    outdated: bool
    undone_at: Line = None


@dataclass(frozen=True, kw_only=True)
class StepAsked(Event):
    """An optimizer is about to step.

    ``scaler`` is the one whose ``step`` asks for it, None for a direct call. ``scaled_by`` is the scaler
    whose scale the gradients still carry, ``scale`` that scale; ``unscaled`` says that they have been divided
    by it, ``cleared`` that they were set to zero after backward, ``spent`` that a step had come before that
    and zeros are left. There are gradients ``waiting``; they are ``fresh`` unless a step has used them,
    ``change`` says what was done to them since backward, a division by the scale on the line ``undone_at``,
    ``overflowed`` that they and the loss are inf or NaN, and ``by_closure`` that only a closure will compute
    them. ``half`` is the dtype of the weights where that has 16 bits, as it has since ``cast_at``,
    ``eps_vanishes`` an eps and the dtype of the weights in which it is 0. Gradients were last cleared at
    ``cleared_at``. ``decay`` is the part of the weights in 16 bits that is taken from them by itself; a
    framework was ``asked`` for a precision, "" for none. So many means were added up to make the gradients:
    ``means_added_up``, made at ``means_made_at``; 0 where they were divided, or are of several losses.
    """

    optimizer: int
    scaler: int | None
    scaled_by: int | None
    scale: float | None
    unscaled: bool
    cleared: bool
    spent: bool
    fresh: bool
    waiting: bool
    by_closure: bool
    autocast: bool
    change: Change = "none"
    undone_at: Line = None
    overflowed: bool = False
    half: torch.dtype | None = None
    eps_vanishes: tuple[float, torch.dtype] | None = None
    cleared_at: Line = None
    cast_at: Line = None
    decay: float | None = None
    asked: str = ""
    means_added_up: int = 0
    means_made_at: Line = None


@dataclass(frozen=True, kw_only=True)
class ProductsInStep(Event):
    """An optimizer's step began inside autocast, which has cast products of its own to this dtype."""

    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class StepDone(Event):
    """The end of a step: it ``happened``, or the scaler skipped it.

    ``loss`` is the sum of the losses of so many ``backwards``, on the lines ``backward_at``. Where several
    steps in a row were skipped, the first inf or NaN of the forward pass was ``broken_at`` one line, as far
    as that was heard; through another line the gradients of a skipped one have ``grown``, so many times.
    """

    optimizer: int
    scaler: int | None
    happened: bool
    loss: float | None = None
    backwards: int = 1
    backward_at: frozenset[Line] = frozenset()
    broken_at: Line = None
    grown: tuple[Line, float] | None = None


@dataclass(frozen=True, kw_only=True)
class OverflowPassed(Event):
    """A scaler let a step happen in whose backward pass a gradient on the way was inf or NaN."""


@dataclass(frozen=True, kw_only=True)
class OverflowDropped(Event):
    """The gradients of a loss that was inf or NaN were cleared, and ``scaler`` had not seen them yet."""

    scaler: int
    scale: float | None


@dataclass(frozen=True, kw_only=True)
class Dropped(Event):
    """The gradients of an optimizer that has not stepped yet were cleared, and no other has used them.

    ``moved`` says that its weights have been changed since that last happened.
    """

    optimizer: int
    moved: bool


@dataclass(frozen=True, kw_only=True)
class UpdatesLost(Event):
    """A step left a ``share`` of the weights in 16 bits as they were, although they have a gradient.

    Of the layers in 16 bits, ``still`` are those of which half the weights were left so; ``layers`` are all.
    """

    dtype: torch.dtype
    share: float
    layers: int
    still: tuple[str, ...] = ()
    since: Line = None


@dataclass(frozen=True, kw_only=True)
class WeightsInHalf(Event):
    """An optimizer stepped weights in 16 bits, and keeps its ``moments``, by name, in the same dtype.

    ``under_autocast`` says that their forward pass ran under autocast, ``origin`` since when they are so, in
    words, where that is known, ``since`` on which line.
    """

    dtype: torch.dtype
    moments: tuple[str, ...]
    under_autocast: bool
    origin: str
    since: Line = None


@dataclass(frozen=True, kw_only=True)
class BuffersBroken(Event):
    """Buffers that were finite are inf or NaN where their modules compute with them; all weights are finite.

    ``names`` are theirs, each behind its module's; ``statistics`` says that the first one is a norm's,
    ``skipped`` that the step before was skipped.
    """

    names: tuple[str, ...]
    statistics: bool
    skipped: bool


@dataclass(frozen=True, kw_only=True)
class WeightsBroken(Event):
    """A step made with inf or NaN left weights of these ``layers`` so, and nothing put them back.

    ``in_backward`` says that its loss was finite, and its gradients were not.
    """

    layers: tuple[str, ...]
    in_backward: bool


@dataclass(frozen=True, kw_only=True)
class SummedInHalf(Event):
    """DDP was told to send gradients, and so to add them up, in 16 bits, by this ``hook``."""

    hook: str


@dataclass(frozen=True, kw_only=True)
class ShardsInHalf(Event):
    """An optimizer stepped weights of which each rank holds a part, in 16 bits: those of this ``layer``."""

    layer: str
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class Underflow(Event):
    """All gradients lay at the lower end of fp16 at this scale, which could have been larger."""

    scale: float


@dataclass(frozen=True, kw_only=True)
class GradientsZero(Event):
    """Every gradient of an optimizer was exactly 0 at this step, and at the one looked at before.

    ``used`` is the dtype of autocast, None without; ``scale`` is the loss scale.
    """

    used: torch.dtype | None
    scale: float


@dataclass(frozen=True, kw_only=True)
class Zeros(Event):
    """Most gradients of some layers, by name, were exactly 0: these ``shares``."""

    shares: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """The training ended by an exception; ``overflow`` says that a batch had just overflowed.

    ``stopped`` says that the script's own code ended it, where the gradients that no step had used yet were
    inf or NaN, and the weights were finite.
    """

    exception: str
    message: str
    overflow: bool
    stopped: bool = False


@dataclass(frozen=True, kw_only=True)
class ClosureGiven(Event):
    """``scaler.step`` was given a closure, which the optimizer ``wants``, and not only takes."""

    wants: bool = False


@dataclass(frozen=True, kw_only=True)
class Updated(Event):
    """``scaler.update`` has run: the scale ``before`` and ``after``, where reading them costs nothing."""

    scaler: int
    before: float | None
    after: float | None


@dataclass(frozen=True, kw_only=True)
class ScheduleStepped(Event):
    """A learning rate schedule went on, ``in_step`` where a hook of the optimizer's step took it along."""

    schedule: int
    optimizer: int | None
    in_step: bool = False


@dataclass(frozen=True, kw_only=True)
class Averaged(Event):
    """A moving average of the weights, which ``optimizer`` steps, took them in; ``dtype`` is its own.

    It only ``resembles`` one where numbers alone say that what it took in were weights. ``in_step`` says that
    a hook of the optimizer's step took it along.
    """

    optimizer: int | None
    dtype: torch.dtype
    weight_dtype: torch.dtype
    stuck: bool | None = None
    resembles: bool = False
    in_step: bool = False


@dataclass(frozen=True, kw_only=True)
class Saved(Event):
    """Something was written with ``torch.save``: whether it holds an optimizer's state, and a scaler's."""

    optimizer: bool
    scaler: bool


@dataclass(frozen=True, kw_only=True)
class Resumed(Event):
    """An optimizer was given its state, after a file was read that holds one, and perhaps a scaler's."""

    scaler: bool


@dataclass(frozen=True, kw_only=True)
class Refused(Event):
    """A method of a scaler raised: ``called`` are the names called since the last backward before it.

    Gradients were last cleared at ``cleared_at``; weights are in 16 bits since ``cast_at``. Of a backward
    pass ``again`` says that its loss had gone backward before, of a step that its optimizer had made, or
    skipped, one since the last backward pass.
    """

    method: str
    message: str
    called: tuple[str, ...]
    again: bool = False
    called_before: tuple[str, ...] = ()
    cleared_at: Line = None
    cast_at: Line = None


@dataclass(frozen=True, kw_only=True)
class Arithmetic(Event):
    """Something outside the layers was computed in 16 bits that 16 bits cannot hold.

    ``code`` is the finding's; ``facts`` are numbers for its message.
    """

    code: str
    dtype: torch.dtype
    facts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ScaledRead(Event):
    """A number was read while it was multiplied by the loss scale; ``what`` it was, in words."""

    what: str
