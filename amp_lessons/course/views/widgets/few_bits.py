"""Store a decoder's weights in few bits, by groups, and see its perplexity against what a weight takes."""

from __future__ import annotations

from functools import lru_cache

from matplotlib.figure import Figure
from torch import Tensor

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, INK, QUIET, ZONES, house_style
from amp_lessons._base.text.words import MEASURED_MARK
from amp_lessons.course.material import decoder
from amp_lessons.course.material.decoder import Decoder
from amp_lessons.course.views.base.controls import ControlValue, Slider
from amp_lessons.course.views.base.view import View
from amp_lessons.formats import by_groups

FEWEST_BITS, MOST_BITS = 2, 8
GROUPS = (4, 8, 16, 32, None)  # None: one scale for a row


class FewBitsView(View):
    """Perplexity against bits per weight, the scales included, for each number of bits and each group."""

    bits = ControlValue[int]("_bits", "Bits of a code, 2 to 8.")
    group = ControlValue[int]("_group", "The place in ``GROUPS`` of how many weights share a scale.")

    def __init__(
        self, model: Decoder, inputs: Tensor, targets: Tensor, bits: int = 4, group: int = 3
    ) -> None:
        """Show ``model`` with the weights of its blocks in ``bits`` bits, ``GROUPS[group]`` to a scale."""
        self._decoder, self._inputs, self._targets = model, inputs, targets
        self._exact = decoder.perplexity(model, inputs, targets)
        self.found = lru_cache(maxsize=None)(self._find)
        self._bits = Slider("Bits", FEWEST_BITS, MOST_BITS, bits)
        self._group = Slider("Weights to a scale", 0, len(GROUPS) - 1, group, words=_group_words)
        super().__init__([self._bits, self._group], alt="Perplexity of a decoder against bits per weight.")
        self._refresh()
        self.follow(self._refresh, self._bits, self._group)

    def _find(self, bits: int, group: int | None) -> tuple[float, float]:
        """Return the bits that a weight takes, and the perplexity."""
        taken: list[tuple[float, int]] = []

        def stored(weight: Tensor) -> Tensor:
            made = by_groups(weight, bits, group)
            taken.append((made.bits_per_weight, weight.numel()))
            return made.dequantize()

        small = decoder.with_block_weights(self._decoder, stored)
        numbers = sum(count for _, count in taken)
        per_weight = sum(each * count for each, count in taken) / numbers
        return per_weight, decoder.perplexity(small, self._inputs, self._targets)

    def _refresh(self) -> None:
        per_weight, perplexity = self.found(self.bits, GROUPS[self.group])
        curve = {bits: self.found(bits, GROUPS[self.group]) for bits in range(FEWEST_BITS, MOST_BITS + 1)}
        row = [self.found(self.bits, group) for group in GROUPS]
        words = (
            f"{self.bits} bits, {_group_words(self.group)} to a scale: {per_weight:.3g} bits per weight, "
            f"{16 / per_weight:.1f} times less than in 16 bits; perplexity {perplexity:.3f}, "
            f"in fp32 {self._exact:.3f}."
        )
        picture = few_bits_picture(curve, row, (per_weight, perplexity), self._exact)
        self.show(picture, words, mark=MEASURED_MARK)


def _group_words(place: int) -> str:
    return "a row" if GROUPS[place] is None else str(GROUPS[place])


def few_bits_picture(
    curve: dict[int, tuple[float, float]],
    row: list[tuple[float, float]],
    here: tuple[float, float],
    exact: float,
) -> Picture:
    """Draw a curve over bits for one group, the other groups of the bits that are chosen, and fp32's line."""
    with house_style():
        figure = Figure(figsize=(9, 3.1))
        axes = figure.add_axes((0.08, 0.18, 0.89, 0.74))
        axes.axhline(exact, color=QUIET, lw=1, ls="--")
        axes.annotate("fp32", (9.9, exact), (0, 2), textcoords="offset points", color=QUIET, fontsize=9)
        axes.plot(*zip(*curve.values(), strict=True), marker="o", ms=4, color=ACCENT, label="other bits")
        others = zip(*row, strict=True)
        axes.plot(
            *others, marker="s", ms=5, ls="none", color=ZONES["underflowed"].colour, label="other groups"
        )
        axes.plot(*here, marker="o", ms=11, mfc="none", mec=INK, mew=1.8)
        axes.set(xlim=(1.5, 12.5), xlabel="bits per weight, scales included", ylabel="perplexity")
        axes.legend(loc="upper right")
    return Picture(figure)
