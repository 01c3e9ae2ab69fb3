"""Recipes in 8 bits of a GPU and a library, and for which layers: lesson 09's rule and table, as data.

What stands here was read in the documentation and the source of the two libraries, and not run here:
torchao 0.18, and Transformer Engine 2.20.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST = "tensorwise"  # of torchao's recipes the one that can gather weights in FP8, and then the fastest
SECOND = "rowwise_with_gw_hp"  # faster in the one published run where both gathered alike
MULTIPLE = 16  # what the kernels take of a layer's sides


@dataclass(frozen=True)
class Choice:
    """The first choice on a GPU: a call of Transformer Engine's ``recipes``; torchao has one rule for all.

    ``gpus`` are names of data sheets (``measure.GPUS``); ``transformer_engine`` is "" where AMD's own build
    of it is needed. Its recipe takes sides that are multiples of ``multiple``. ``second`` is what torchao has
    beside the first: to be timed where weights are not gathered in FP8, or if the loss falls behind bf16's.
    """

    gpus: tuple[str, ...]
    transformer_engine: str
    multiple: int = MULTIPLE
    second: str = f"`{SECOND}`"

    @property
    def words(self) -> str:
        """Both libraries in words."""
        theirs = f"; or Transformer Engine's `{self.transformer_engine}`" if self.transformer_engine else ""
        if self.multiple != MULTIPLE:
            theirs += f" (sides in multiples of {self.multiple})"
        when = "where weights are not gathered in FP8, or if its loss falls behind bf16's"
        return f"torchao's `{FIRST}`, compiled, beside it {self.second} {when}{theirs}"


CHOICES = (
    Choice(("L4", "RTX 4090"), "Float8CurrentScaling()"),
    Choice(("H100 SXM", "H200 SXM"), "Float8CurrentScaling()"),
    Choice(("B200 SXM",), "MXFP8BlockScaling()", multiple=32, second="MXFP8, in `prototype`,"),
    Choice(("MI300X", "MI350X"), ""),
)


def choice_for(gpu: str) -> Choice | None:
    """Return what to begin with on the GPU of a data sheet, None where it multiplies nothing in 8 bits."""
    return next((each for each in CHOICES if gpu in each.gpus), None)


def fits(inputs: int, outputs: int) -> bool:
    """Say whether torchao's filter for ``FIRST`` converts a linear layer of these sides.

    Its bounds come from times on H100s (``_auto_filter_for_tensorwise``).
    """
    return (outputs > 1024 or inputs > 4096) and inputs % MULTIPLE == outputs % MULTIPLE == 0
