"""Which recipe a GPU and a library offer: lesson 09's table, as data.

What stands here was read in the documentation and the source of the two libraries, and not run here:
torchao 0.18, and Transformer Engine 2.20. ``SIDE`` and ``MULTIPLE`` are what a layer's sides are to be.
"""

from __future__ import annotations

from dataclasses import dataclass

SIDE = 1024  # at least: a guess, for casts cost as much time as small products save
MULTIPLE = 16  # what the kernels take


@dataclass(frozen=True)
class Choice:
    """What to begin with on a GPU: a recipe of torchao's, for a compiled model, and a call of ``recipes``.

    ``gpus`` are names of data sheets (``measure.GPUS``); ``transformer_engine`` is "" where AMD's own build
    of it is needed. Its recipe takes sides that are multiples of ``multiple``.
    """

    gpus: tuple[str, ...]
    torchao: str
    transformer_engine: str
    multiple: int = MULTIPLE

    @property
    def words(self) -> str:
        """Both libraries in words."""
        theirs = f", or Transformer Engine's `{self.transformer_engine}`" if self.transformer_engine else ""
        if self.multiple != MULTIPLE:
            theirs += f" (sides in multiples of {self.multiple})"
        return f"torchao's `{self.torchao}`, compiled{theirs}"


CHOICES = (
    Choice(("L4", "RTX 4090"), "rowwise", "Float8CurrentScaling()"),
    Choice(("H100 SXM", "H200 SXM"), "rowwise", "Float8CurrentScaling()"),
    Choice(("B200 SXM",), "tensorwise", "MXFP8BlockScaling()", multiple=32),
    Choice(("MI300X", "MI350X"), "tensorwise", ""),
)


def choice_for(gpu: str) -> Choice | None:
    """Return what to begin with on the GPU of a data sheet, None where it multiplies nothing in 8 bits."""
    return next((each for each in CHOICES if gpu in each.gpus), None)


def fits(sides: tuple[int, ...]) -> bool:
    """Whether a linear layer of these sides is large enough for 8 bits, and the kernels take it."""
    return min(sides) >= SIDE and all(side % MULTIPLE == 0 for side in sides)
