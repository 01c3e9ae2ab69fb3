"""What is changed in one run of a training, as people type it. Nothing here needs PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

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
