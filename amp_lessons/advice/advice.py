"""Advice, and how it reads: what to do, sentence by sentence, each with what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from amp_lessons._base.render import InSections, Section
from amp_lessons.audit import Report
from amp_lessons.autocast import Islands, Ledger
from amp_lessons.measure import Bound, Decoding, Footprint, LargestBatch, Timing

Label = Literal["measured", "computed"]
Kind = Literal["answer", "mend", "watch"]


@dataclass(frozen=True)
class Claim:
    """One sentence of advice, ``because`` of what, and whether that was measured here or computed.

    ``kind`` tells answers from what has to be mended before training in mixed precision, and from what is
    only to be watched. ``module`` is the path of the module that it is about, None where it is about all.
    """

    kind: Kind
    text: str
    because: str
    label: Label
    module: str | None = None

    @property
    def item(self) -> tuple[str, str]:
        """The sentence, without its full stop, and what it rests on with its label."""
        return self.text.removesuffix("."), f"[{self.label}] {self.because}"


@dataclass(frozen=True, repr=False)
class Advice(InSections):
    """Whether to train a model in mixed precision, in which dtype, and what to watch; and what that rests on.

    ``verdict`` is the advice, for training on ``gpu`` in autocast's ``dtype``. Behind it stand the ledger of
    a step, the islands by dtype, and by precision ("fp32", "bf16") the memory of a step, the largest batch,
    the least time that the roofline allows on the GPU, and the times measured here; the audit of some steps;
    and, of a language model, what ``decoding`` reads for each token. What could not be found out is left out,
    and ``not_done`` says why. Paths of modules in ``islands`` and ``ledger`` begin with ``model``; what has
    no path is the loss. ``views.advice_page`` makes a whole page of it, with the audit's pictures.
    """

    html_class = "amp-advice"

    of: str
    gpu: str
    dtype: torch.dtype
    verdict: tuple[Claim, ...]
    ledger: Ledger | None = None
    islands: Mapping[torch.dtype, Islands] = field(default_factory=dict)
    memory: Mapping[str, Footprint] = field(default_factory=dict)
    largest_batch: Mapping[str, LargestBatch] = field(default_factory=dict)
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    timings: Mapping[str, Timing] = field(default_factory=dict)
    decoding: Decoding | None = None
    audit: Report | None = None
    sections: tuple[Section, ...] = ()
    not_done: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing has to be mended before the model is trained in mixed precision."""
        return not any(claim.kind == "mend" for claim in self.verdict)

    @property
    def headline(self) -> str:
        """The first sentence of the verdict, and of which model it is."""
        return f"{self.of}: {self.verdict[0].text}"

    def opening(self) -> Iterator[str]:
        """Yield the headline."""
        yield self.headline

    def _head_lines(self) -> list[str]:
        return [self.headline]  # however long: it is one line

    def all_sections(self) -> Iterator[Section]:
        """Yield all that there is to read: the verdict, then what it rests on."""
        for kind, title in _TITLES.items():
            items = tuple(claim.item for claim in self.verdict if claim.kind == kind)
            if items:
                yield Section(title, items=items)
        yield from self.sections
        if self.not_done:
            yield Section(
                "Not found out", tuple(f"{sentence[0].upper()}{sentence[1:]}." for sentence in self.not_done)
            )


_TITLES: dict[Kind, str] = {"answer": "The answer", "mend": "To be mended first", "watch": "To be watched"}
