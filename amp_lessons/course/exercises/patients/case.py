"""What a patient's folder says of it beside its card: symptom, runs that show it, diagnoses, variants.

A variant is the same mistake in other clothes: a source in which some pieces are exchanged, drawn by a seed.
A class in which everybody gets another seed has everybody mend other code. Names, the order of lines that
do not depend on each other, and ways to write the same differ; what is wrong stays. The pieces stand in the
broken source and in the mended one, and are exchanged in both alike.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from amp_lessons._base.entries import LOADER
from amp_lessons._base.text.tables import ShownAsTable, Table


@dataclass(frozen=True)
class Curve:
    """One quantity over a run; ``quantity`` names its unit, ``over`` what is counted on the other axis.

    ``at`` holds where on that axis each value stands; without it they are counted from 1.
    """

    quantity: str
    over: str
    values: tuple[float, ...]
    at: tuple[int, ...] | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """Return where on the other axis each value stands."""
        return self.at or tuple(range(1, len(self.values) + 1))


@dataclass(frozen=True, repr=False)
class Observed(ShownAsTable):
    """One run of a patient's code, or of a mended one's; ``numbers`` maps what was counted to its number."""

    curves: tuple[Curve, ...]
    numbers: dict[str, float]

    def curve(self, quantity: str) -> tuple[float, ...]:
        """Return the values of one curve. Raises KeyError for a quantity that was not watched."""
        return {each.quantity: each.values for each in self.curves}[quantity]

    def _table(self) -> Table:
        rows = [(f"{c.quantity}, by {c.over}", " ".join(f"{v:.4g}" for v in c.values)) for c in self.curves]
        rows += [(name, f"{number:.4g}") for name, number in self.numbers.items()]
        return Table(("seen", "in this run"), rows)


@dataclass(frozen=True)
class Choice:
    """Ways to write the same: each a tuple of as many pieces, the first as the stub has them.

    A piece that is a Python name is exchanged wherever it stands as a whole word, unless it is an attribute;
    any other piece where it stands, which is once.
    """

    ways: tuple[tuple[str, ...], ...]

    def put(self, source: str, way: tuple[str, ...]) -> str:
        """Write ``source`` in this way. Raises ValueError where a piece is not to be found."""
        for old, new in zip(self.ways[0], way, strict=True):
            source = _exchanged(source, old, new)
        return source


def names(*ways: str) -> Choice:
    """Make the choice between names, several of which may change together: ``names("x, y", "a, b")``."""
    return Choice(tuple(tuple(re.findall(r"\w+", way)) for way in ways))


def pieces(*ways: tuple[str, ...]) -> Choice:
    """Make the choice between pieces of code."""
    return Choice(ways)


def drawn(choices: Iterable[Choice], seed: int) -> list[tuple[Choice, tuple[str, ...]]]:
    """Draw one way of every choice; seed 0 is the stub as it stands."""
    draw = random.Random(seed)
    return [(choice, draw.choice(choice.ways) if seed else choice.ways[0]) for choice in choices]


def written(source: str, ways: Iterable[tuple[Choice, tuple[str, ...]]]) -> str:
    """Write a source in the ways that were drawn."""
    for choice, way in ways:
        source = choice.put(source, way)
    return source


def _exchanged(source: str, old: str, new: str) -> str:
    if old == new:
        return source
    if old.isidentifier():
        return re.sub(rf"(?<![\w.]){old}\b", new, source)
    if source.count(old) != 1:
        raise ValueError(f"a piece stands once in a source, but {old!r} stands {source.count(old)} times")
    return source.replace(old, new)


# what a training loop of the exercises calls things; the arguments among these are passed by position
LOOP_NAMES = (
    names("inputs, targets", "x, y", "images, labels", "batch, wanted", "features, classes"),
    names("model", "net", "network"),
    names("loader", "batches", "train_loader", "data"),
    names("history", "means", "curve", "losses_by_epoch"),
    names("total", "running", "loss_sum", "epoch_loss"),
)


@dataclass(frozen=True)
class Diagnosis:
    """One thing that may be wrong, and what of the symptom and the code speaks for it or against it."""

    text: str
    because: str
    right: bool = False


@dataclass(frozen=True)
class Sighting:
    """A public place where somebody met this mistake, and what they said of it, in our words."""

    url: str
    told: str


@dataclass(frozen=True)
class Case:
    """One patient, as the ``CASE`` in its folder's ``patient.py``; its texts stand in ``patient.yaml``.

    ``silent`` says that nothing is raised, PyTorch does not warn, and no loss becomes inf or NaN. ``symptom``
    is one sentence that a person would report, without a diagnosis. ``code`` is that of the finding which the
    stub deserves.
    ``observe`` takes whatever the exercise's check takes, and a seed which picks model and data, runs it for
    a few seconds at most, and tells what somebody would see of that run; ``shows`` says whether that is the
    symptom. ``choices`` are what variants differ in: names, and pieces of code that are exchanged together.
    """

    silent: bool
    symptom: str
    code: str
    diagnoses: tuple[Diagnosis, ...]
    seen_at: tuple[Sighting, ...]
    observe: Callable[[Any, int], Observed]
    shows: Callable[[Observed], bool]
    choices: tuple[Choice, ...] = field(repr=False)

    @classmethod
    def beside(cls, module: str, **that_runs: Any) -> Case:
        """Make the case of the texts beside a ``module``, by its path, and of what stands in it."""
        texts = yaml.load(Path(module).with_suffix(".yaml").read_text("utf-8"), LOADER)
        diagnoses = tuple(Diagnosis(**each) for each in texts.pop("diagnoses"))
        seen_at = tuple(Sighting(**each) for each in texts.pop("seen_at"))
        choices = tuple(choice for told in texts.pop("choices") for choice in _told_of(told))
        return cls(diagnoses=diagnoses, seen_at=seen_at, choices=choices, **texts, **that_runs)


def _told_of(told: Any) -> tuple[Choice, ...]:
    """Read choices: ``loop_names`` are those above, ``names`` and ``pieces`` one each."""
    if told == "loop_names":
        return LOOP_NAMES
    return (names(*told["names"]) if "names" in told else pieces(*map(tuple, told["pieces"])),)
