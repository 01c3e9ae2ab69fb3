"""Choose which parts of a decoder compute in 16 bits, and see how much each log-probability changes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from torch import Tensor

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, QUIET, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK, counted
from amp_lessons.course.material import decoder
from amp_lessons.course.material.decoder import PARTS, Arithmetic, Changes, Decoder
from amp_lessons.course.views.base.controls import ControlValue, checkbox, dropdown, row
from amp_lessons.course.views.base.number_line import powers_of_ten
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import Still
from amp_lessons.precisions import HALVES

SMALLEST, LARGEST = 1e-6, 10.0  # of the changes that are drawn; smaller ones stand at the left end
_BINS_PER_DECADE = 5


class PartsView(View):
    """A trained decoder, some of its parts in 16 bits, against itself in fp32."""

    format = ControlValue[str]("_format", "The format of the parts that are chosen: bf16 or fp16.")
    replayed = ControlValue[bool]("_replay", "Whether each token keeps the experts that it has in fp32.")

    def __init__(
        self, model: Decoder, inputs: Tensor, targets: Tensor, parts: tuple[str, ...] = PARTS
    ) -> None:
        """Show what ``model`` changes in its log-probabilities of ``targets`` with ``parts`` in bf16.

        Up to some 10,000 tokens a click is answered at once. Raises ValueError for an unknown part.
        """
        self._decoder, self._inputs, self._targets = model, inputs, targets
        Arithmetic(dict.fromkeys(parts, torch.bfloat16))  # refuses what is no part
        self._boxes = {part: checkbox(part, part in parts) for part in PARTS}
        self._format = dropdown("in", ["bf16", "fp16"], "bf16")
        self._replay = checkbox("keep fp32's experts")
        super().__init__(
            [row(*self._boxes.values()), row(self._format, self._replay)],
            alt="Histogram of how much the log-probabilities of a decoder change.",
        )
        decoder.perplexity(model, inputs[:1], targets[:1])  # what is wrong with the arguments is raised here
        with torch.no_grad():
            model(inputs)
        self._routes = model.chosen
        self._refresh()
        self.follow(self._refresh, *self._boxes.values(), self._format, self._replay)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that compute in 16 bits."""
        return tuple(part for part, box in self._boxes.items() if box.value)

    @parts.setter
    def parts(self, chosen: tuple[str, ...]) -> None:
        with self.held():  # one picture for all of them
            for part, box in self._boxes.items():
                box.value = part in chosen
        self._refresh()

    @property
    def arithmetic(self) -> Arithmetic:
        """What is compared with fp32."""
        routes = self._routes if self.replayed else None
        return Arithmetic(dict.fromkeys(self.parts, HALVES[self.format]), routes=routes)

    def _refresh(self) -> None:
        found = decoder.changes(self._decoder, self._inputs, self._targets, self.arithmetic)
        self.show(changes_picture(found), self._in_words(found), mark=MEASURED_MARK)

    def _in_words(self, found: Changes) -> str:
        if not self.parts:
            return "All parts in fp32: no log-probability changes."
        names = "All parts" if self.parts == PARTS else ", ".join(self.parts)
        return (
            f"{names} in {self.format}: a log-probability typically changes by {found.typical:.4f}, "
            f"by {found.largest:.3f} at most; {counted(found.other_experts, 'choice')} of experts differ."
        )


def changes_picture(found: Changes) -> Picture:
    """Draw how many log-probabilities change by how much, with the typical and the largest change."""
    with house_style():
        figure = Figure(figsize=(9, 2.9))
        axes = figure.add_axes((0.08, 0.2, 0.89, 0.68))
        seen = found.off.flatten().clamp(SMALLEST, LARGEST).log10()
        low, high = (torch.tensor(end).log10().item() for end in (SMALLEST, LARGEST))
        counts = torch.histc(seen, bins=round(high - low) * _BINS_PER_DECADE, min=low, max=high)
        edges = torch.logspace(low, high, len(counts) + 1)
        heights, widths = counts.clamp(min=0.5).tolist(), edges.diff().tolist()
        axes.bar(edges[:-1].tolist(), heights, widths, align="edge", color=ZONES["normal"].colour)
        axes.set(xscale="log", yscale="log", xlim=(SMALLEST, LARGEST), ylim=(0.7, 2 * found.off.numel()))
        axes.set(xlabel="change of a log-probability", ylabel="tokens")
        for name, value, colour in (("typical", found.typical, ACCENT), ("largest", found.largest, INK)):
            if value > SMALLEST:
                axes.axvline(value, color=colour, lw=1.5)
                axes.text(value, 1.02, name, transform=axes.get_xaxis_transform(), ha="center", color=colour)
        powers_of_ten(axes.xaxis)
    return Picture(figure)


def changes_by_name(found: Mapping[str, Changes], without: Mapping[str, Changes] | None = None) -> Still:
    """Show one row of changes per name; ``without`` has, by the same names, those of all others together."""
    by_typical, by_largest, by_choices = (
        max(found, key=lambda name: getattr(found[name], of))
        for of in ("typical", "largest", "other_experts")
    )
    caption = (
        f"The largest typical change is {found[by_typical].typical:.4f} ({by_typical}), the largest of all "
        f"{found[by_largest].largest:.2f} ({by_largest}); most other experts are chosen with {by_choices}: "
        f"{found[by_choices].other_experts}."
    )
    rows = (f"{name} {', '.join(_numbers(each))}" for name, each in found.items())
    alt = f"Changes of log-probabilities, typical, largest, and other choices of experts: {'; '.join(rows)}."
    return Still(changes_by_name_picture(found, without or {}), caption, alt, mark=MEASURED_MARK)


def _numbers(each: Changes) -> tuple[str, str, str]:
    return f"{each.typical:.4f}", f"{each.largest:.2f}", str(each.other_experts)


_COLUMNS = {"typical": 0.79, "largest": 0.87, "other choices": 0.99}  # their right ends


def changes_by_name_picture(found: Mapping[str, Changes], without: Mapping[str, Changes]) -> Picture:
    """Draw the typical and the largest change of each name on one line, with the numbers beside it."""
    with house_style():
        height, left = 0.3 * len(found) + 1.15, 0.04 + 0.008 * max(map(len, found))
        figure = Figure(figsize=(8.2, height))
        axes = figure.add_axes((left, 0.55 / height, 0.72 - left, 0.3 * len(found) / height))
        axes.set(xscale="log", ylim=(len(found) - 0.5, -0.5), xlabel="change of a log-probability")
        places = range(len(found))
        typical, largest = ([getattr(each, of) for each in found.values()] for of in ("typical", "largest"))
        axes.hlines(places, typical, largest, color=GRID, lw=3, zorder=1)
        axes.plot(typical, places, "o", color=ACCENT, ms=7, label="typical")
        axes.plot(largest, places, "D", color=ZONES["underflowed"].colour, ms=6, label="largest")
        if without:
            rest = [without[name].typical for name in found]
            axes.plot(rest, places, "o", mfc="none", color=QUIET, ms=8, label="typical, all but this")
        axes.set_yticks(places, list(found))
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color=GRID)
        axes.legend(loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=3, handletextpad=0.2)
        powers_of_ten(axes.xaxis)
        for title, right in _COLUMNS.items():
            figure.text(right, 1 - 0.42 / height, title, ha="right", color=QUIET, fontsize=9)
        for place, each in enumerate(found.values()):
            for words, right in zip(_numbers(each), _COLUMNS.values(), strict=True):
                figure.text(right, 1 - (0.75 + 0.3 * place) / height, words, ha="right", va="center")
    return Picture(figure)
