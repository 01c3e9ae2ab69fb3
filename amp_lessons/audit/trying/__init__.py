"""The same training again with one thing changed, and what of a loss that difference explains.

A run's loss is the mean of its last quarter of steps, whose batches are the same in all runs. Two runs of
the same training differ too, by what rounding makes of them: what is no larger than three times the range of
three such runs is not told apart. (Of two runs from one normal distribution, four in a hundred differ more.)
Only ``carrying_out`` needs PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amp_lessons._base.render import Section
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import counted, listed, number

WHOLE = ("fp32", "bf16", "fp16")
REDUCE = "reduce"
RIGHT = (
    "fp32, bf16 or fp16 for all that autocast computes, MODULE=fp32 for one module or A,B=fp32 for several "
    "together, reduce=fp32 for the sums within matrix products"
)


@dataclass(frozen=True)
class Trial:
    """One run: ``whole`` is the precision of all that autocast computes, "" as the script has it.

    ``modules`` are islands of fp32; ``reduce`` asks for sums within products in fp32. ``nudge`` numbers a
    repetition whose weights differ by a rounding error of ``half``, 0 for none. ``islands`` names the file
    into which a run that searches for islands in ``half`` writes them, and ends.
    """

    whole: str = ""
    modules: tuple[str, ...] = ()
    reduce: bool = False
    nudge: int = 0
    half: str = "fp16"
    islands: str = ""

    def __str__(self) -> str:
        if self.reduce:
            return f"{REDUCE}=fp32"
        return f"{','.join(self.modules)}=fp32" if self.modules else self.whole


def trial_of(text: str) -> Trial:
    """Read what ``str`` makes of a trial. Raises ValueError for anything else."""
    name, equals, precision = text.rpartition("=")
    if not equals and precision in WHOLE:
        return Trial(whole=precision)
    modules = tuple(each.strip() for each in name.split(","))
    if precision != "fp32" or not all(modules):
        raise ValueError(f"{text!r} is nothing to try: {RIGHT}")
    return Trial(reduce=True) if name == REDUCE else Trial(modules=modules)


AS_IT_IS = "as it is"
_RANGES = 3  # of equal runs
_LAST = 4  # a quarter
_TOO_LITTLE = 0.01  # of what the training gains: below it, nothing is worth an island


@dataclass(frozen=True)
class Run:
    """One run: ``what`` was changed, and the loss of each of its steps.

    ``failed`` says why there are no ``losses``, or, where there are some, how the script failed after them.
    """

    what: str
    losses: tuple[float, ...] = ()
    skipped: int = 0
    failed: str = ""

    @property
    def loss(self) -> float:
        """The mean loss of the last quarter of the steps; NaN where one is not finite, or the run failed."""
        last = self.losses[-math.ceil(len(self.losses) / _LAST) :]
        finite = bool(last) and not self.failed and all(map(math.isfinite, last))
        return sum(last) / len(last) if finite else math.nan


@dataclass(frozen=True)
class Tried:
    """All runs: the script as it is, in ``dtype``; the same ``again``, nudged; in fp32; and the ``others``.

    ``left_out`` says, a sentence each, what was not tried and why.
    """

    dtype: str
    as_it_is: Run
    fp32: Run
    again: tuple[Run, ...] = ()
    others: tuple[Run, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def noise(self) -> float:
        """The difference that equal runs may have; NaN where that is not known."""
        losses = [run.loss for run in (self.as_it_is, *self.again)]
        return _RANGES * (max(losses) - min(losses)) if self.again and not _any_nan(losses) else math.nan

    @property
    def difference(self) -> float:
        """How much more loss there is than in fp32."""
        return self.as_it_is.loss - self.fp32.loss

    @property
    def diverged(self) -> bool:
        """Whether the training does not stay finite, in one of its equal runs at least, and in fp32 does."""
        return _any_nan([run.loss for run in (self.as_it_is, *self.again)]) and self.fp32_is_fine

    @property
    def fp32_is_fine(self) -> bool:
        """Whether there is a finite loss in fp32."""
        return not math.isnan(self.fp32.loss)

    @property
    def something_to_gain(self) -> bool:
        """Whether fp32 is better by more than the noise, and by more than a hundredth of what it gains."""
        if self.diverged or not self.fp32_is_fine:
            return self.diverged
        if math.isnan(self.noise):
            return False
        gained = abs(self.fp32.losses[0] - self.fp32.loss)
        return self.difference > max(self.noise, _TOO_LITTLE * gained)

    def explained(self, run: Run) -> float | None:
        """Return which part of the difference to fp32 goes with this change; None where that is not known.

        It is not where the change makes less difference than equal runs do.
        """
        change = self.as_it_is.loss - run.loss
        known = self.something_to_gain and not self.diverged and abs(change) > self.noise
        return change / self.difference if known else None

    def __str__(self) -> str:
        return "\n".join(self.section().lines())

    def section(self) -> Section:
        """Return what a report says of it."""
        if not self.dtype:  # nothing was tried
            return Section(_TITLE, (self.fp32.failed,))
        runs = (self.as_it_is, self.fp32, *self.others)
        table = Table(_HEAD, [self._row(run) for run in runs])
        return Section(_TITLE, tuple(self._sentences()), table=table)

    def as_dict(self) -> dict[str, object]:
        """Return the numbers for programs to read."""
        return {
            "dtype": self.dtype,
            "noise": self.noise,
            "something_to_gain": self.something_to_gain,
            "runs": [
                {"what": run.what, "loss": run.loss, "explained": self.explained(run), "failed": run.failed,
                 "skipped": run.skipped, "losses": list(run.losses)}
                for run in (self.as_it_is, self.fp32, *self.again, *self.others)
            ],
            "left_out": list(self.left_out),
        }  # fmt: skip

    def _sentences(self) -> Iterator[str]:
        steps = max(len(self.as_it_is.losses), len(self.fp32.losses))
        last = math.ceil(steps / _LAST)
        yield f"The script ran again from its beginning for {counted(steps, 'step')}, with one thing changed."
        yield f"Loss is the mean of the last {counted(last, 'step')}."
        yield self._verdict()
        yield from self._best()
        yield from self.left_out

    def _verdict(self) -> str:
        if not self.fp32_is_fine:
            neither = "In fp32 the loss is not finite either: this is not a matter of precision."
            return "fp32 was not tried." if self.fp32.failed else neither
        if self.fp32.losses == self.as_it_is.losses:
            return (
                "The run in fp32 is the same to the last bit: what computes in 16 bits here was not asked of "
                "torch.autocast where it could be changed, as in compiled code that enters it inside."
            )
        if self.diverged:
            losses = [run.loss for run in (self.as_it_is, *self.again)]
            broken, runs = sum(map(math.isnan, losses)), counted(len(losses), "equal run")
            said = f"In {self.dtype} the loss is not finite, or the script fails, in {broken} of {runs}"
            return f"{said}; in fp32 neither."
        if math.isnan(self.noise):
            return "How much equal runs differ is not known, so nothing is said of what a difference means."
        side = "above" if self.difference > 0 else "below"
        differs = f"{self.dtype} ends {number(abs(self.difference), 2)} {side} fp32"
        equal = f"runs that are equal but for a rounding error may differ by {number(self.noise, 2)}"
        if self.something_to_gain:
            return f"{differs}, and {equal}."
        if abs(self.difference) <= self.noise:
            return f"Nothing to gain: {differs}, and {equal}."
        if self.difference < 0:
            return f"Nothing to gain: {differs} ({equal})."
        return f"Nothing to gain: {differs}, less than a hundredth of what the training gains."

    def _best(self) -> Iterator[str]:
        """Say which change explains most of the difference, and which are not told apart from nothing."""
        if not self.something_to_gain:
            return
        best = max(self.others, key=self._fraction, default=None)
        if best is not None and self._fraction(best) > 0:
            yield f"`{best.what}` explains {self._say_explained(best)} of the difference."
        lost = [run.what for run in self.others if self._in_the_noise(run)]
        if lost:
            yield f"Not told apart from an equal run: {listed([f'`{each}`' for each in lost])}."

    def _fraction(self, run: Run) -> float:
        return self.explained(run) or 0.0

    def _in_the_noise(self, run: Run) -> bool:
        finite = not math.isnan(run.loss) and not self.diverged
        return finite and abs(self.as_it_is.loss - run.loss) <= self.noise

    def _row(self, run: Run) -> tuple[str, ...]:
        loss = "failed" if run.failed else "not finite" if math.isnan(run.loss) else number(run.loss, 5)
        away = run.loss - self.fp32.loss
        difference = "–" if math.isnan(away) or run is self.fp32 else f"{away:+.2g}"
        name = f"{AS_IT_IS} ({self.dtype})" if run is self.as_it_is else run.what
        return name, loss, difference, str(run.skipped or "none"), self._say_explained(run)

    def _say_explained(self, run: Run) -> str:
        named = run is self.as_it_is or run is self.fp32
        if named or not self.something_to_gain or not run.losses:
            return "–"
        if self.diverged:
            return "none" if math.isnan(run.loss) else "all: it is finite"
        if math.isnan(run.loss):
            return "none: it is not finite"
        part = self.explained(run)
        if part is None:
            return "within the noise"
        if part < 0:
            return "none: it is worse"
        return f"{100 * part:.0f} % ± {100 * self.noise / self.difference:.0f}"


_TITLE = "What was tried"
_HEAD = ("run", "loss", "above fp32", "skipped", "of the difference explained")


def _any_nan(losses: Sequence[float]) -> bool:
    return any(map(math.isnan, losses))
