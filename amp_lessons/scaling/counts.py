"""The census: what becomes of gradients that are multiplied by a loss scale and cast to a narrow format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from amp_lessons.scaling.checks import check_dtype, check_scale
from amp_lessons.scaling.histogram import Counted, SortedTally, Tally, fate_thresholds, is_on_cpu, layout_of

FATES = ("underflowed", "subnormal", "normal", "overflowed")


@dataclass(frozen=True)
class Census:
    """How many gradients meet which fate in ``dtype`` at a loss scale, and in which binade they were before.

    Every gradient is counted exactly once: as ``zero`` (before scaling), as ``nonfinite`` (inf or NaN before
    scaling), or under one of the fates, by its binade floor(log2(abs(g))) before scaling:

    - ``underflowed``: not zero before, zero afterwards
    - ``subnormal``: survives below the smallest normal number of ``dtype``, with fewer significant bits
    - ``normal``: survives with the full precision of ``dtype``
    - ``overflowed``: finite before, and beyond the largest finite value of ``dtype`` afterwards

    ``norm`` is the Euclidean norm of the finite gradients before scaling, ``underflowed_norm`` that of those
    that underflow; both are None where nobody asked for them. They are added up in fp64, so they depend in
    their last digits on the order, and censuses are compared without them.
    """

    dtype: torch.dtype
    scale: float
    zero: int = 0
    nonfinite: int = 0
    fates: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: {fate: {} for fate in FATES})
    norm: float | None = field(default=None, compare=False)
    underflowed_norm: float | None = field(default=None, compare=False)

    @property
    def underflowed(self) -> int:
        """Non-zero gradients that become zero."""
        return sum(self.fates["underflowed"].values())

    @property
    def subnormal(self) -> int:
        """Gradients that survive below the smallest normal number."""
        return sum(self.fates["subnormal"].values())

    @property
    def normal(self) -> int:
        """Gradients that survive with full precision."""
        return sum(self.fates["normal"].values())

    @property
    def overflowed(self) -> int:
        """Finite gradients that leave the range of the format."""
        return sum(self.fates["overflowed"].values())

    @property
    def total(self) -> int:
        """All gradients: the sum of the six counts."""
        return self.zero + self.nonfinite + sum(sum(binades.values()) for binades in self.fates.values())

    @property
    def binades(self) -> dict[int, int]:
        """{floor(log2(abs(g))): count} of the finite non-zero gradients before scaling, ascending."""
        together: Counter[int] = Counter()
        for binades in self.fates.values():
            together.update(binades)
        return dict(sorted(together.items()))

    @property
    def at_stake(self) -> int:
        """The finite non-zero gradients: those that a cast can make something else of."""
        return self.total - self.zero - self.nonfinite

    @property
    def underflow_fraction(self) -> float:
        """The share of the gradients at stake that become zero; 0.0 when there is none."""
        return self.underflowed / self.at_stake if self.at_stake else 0.0

    @property
    def underflow_norm_fraction(self) -> float:
        """The norm of the gradients that become zero, as a share of the norm of all; 0.0 when that is 0.

        It says how far the gradient moves as a vector. Since a cast takes the smallest, it is at most the
        root of ``underflow_fraction``, and mostly far less. Raises ValueError for a census without norms.
        """
        if self.norm is None or self.underflowed_norm is None:
            raise ValueError("this census was taken without norms; use census(..., norms=True)")
        return self.underflowed_norm / self.norm if self.norm else 0.0

    def __add__(self, other: Census) -> Census:
        """Return the census of both sets of gradients. Raises ValueError unless dtype and scale agree."""
        if not isinstance(other, Census):
            return NotImplemented
        if (self.dtype, self.scale) != (other.dtype, other.scale):
            raise ValueError(
                "only censuses of one dtype and scale add up, not "
                f"{self.dtype} at {self.scale:g} and {other.dtype} at {other.scale:g}"
            )
        fates = {fate: _added(self.fates[fate], other.fates[fate]) for fate in FATES}
        return Census(
            self.dtype,
            self.scale,
            self.zero + other.zero,
            self.nonfinite + other.nonfinite,
            fates,
            _together(self.norm, other.norm),
            _together(self.underflowed_norm, other.underflowed_norm),
        )


def census(
    gradients: Tensor | Iterable[Tensor],
    dtype: torch.dtype = torch.float16,
    scale: float = 1.0,
    *,
    norms: bool = False,
) -> Census:
    """Count what becomes of gradients in ``(g * scale).to(dtype)``, count for count as PyTorch does it.

    ``gradients`` is a tensor or any iterable of tensors, of any shape, strides, device and floating dtype.
    They are multiplied in fp32, as ``torch.amp.GradScaler`` scales a loss; fp64 gradients are multiplied and
    cast in fp64. The tensors are read once, in chunks: extra memory does not grow with their size. With
    ``norms`` the census also holds the norms, which takes nearly twice as long on a CPU.

    Raises TypeError for tensors without a floating dtype, and for a scale or dtype of the wrong type;
    ValueError for a scale that is not positive and finite in fp32, or a dtype that cannot hold gradients.
    """
    (found,) = censuses(gradients, [(dtype, scale)], norms=norms)()
    return found


def censuses(
    gradients: Tensor | Iterable[Tensor], wanted: Iterable[tuple[torch.dtype, float]], *, norms: bool = False
) -> Callable[[], tuple[Census, ...]]:
    """Count as ``census`` does, for several dtypes and scales at once; what is returned gives the results.

    What lies on a device is sorted there once, and waited for when the results are asked for.
    """
    targets = [(check_dtype(dtype), check_scale(scale)) for dtype, scale in wanted]
    here: dict[torch.dtype, list[Tally]] = {}
    there: dict[tuple[torch.dtype, torch.device], SortedTally] = {}
    for tensor in _floating_tensors(gradients):
        layout = layout_of(tensor.dtype)
        thresholds = [fate_thresholds(layout.dtype, *target) for target in targets]
        if is_on_cpu(tensor):
            if layout.dtype not in here:
                here[layout.dtype] = [Tally(layout, each, norms) for each in thresholds]
            for tally in here[layout.dtype]:
                tally.add(tensor)
        else:
            place = layout.dtype, tensor.device
            if place not in there:
                there[place] = SortedTally(layout, thresholds, tensor.device)
            there[place].add(tensor)

    def results() -> tuple[Census, ...]:
        found = [[tally.counted for tally in tallies] for tallies in here.values()]
        found += [tally.counted for tally in there.values()]
        return tuple(
            sum((_census(*target, each[k], norms) for each in found), _none(*target, norms))
            for k, target in enumerate(targets)
        )

    return results


def _none(dtype: torch.dtype, scale: float, norms: bool) -> Census:
    nothing = 0.0 if norms else None
    return Census(dtype, scale, norm=nothing, underflowed_norm=nothing)


def _census(dtype: torch.dtype, scale: float, found: Counted, norms: bool) -> Census:
    both = (found.norm, found.lowest_norm) if norms else (None, None)
    return Census(dtype, scale, found.zero, found.nonfinite, _by_fate(found.by_binade), *both)


def _by_fate(by_binade: Mapping[int, list[int]]) -> dict[str, dict[int, int]]:
    return {
        fate: {binade: counts[k] for binade, counts in by_binade.items() if counts[k]}
        for k, fate in enumerate(FATES)
    }


def _added(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    return dict(sorted((Counter(first) + Counter(second)).items()))


def _together(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else math.hypot(first, second)


def _floating_tensors(gradients: Tensor | Iterable[Tensor]) -> Iterator[Tensor]:
    if not isinstance(gradients, Iterable):
        raise TypeError(f"gradients are a tensor, or several in a list, not {type(gradients).__name__}")
    for k, tensor in enumerate([gradients] if isinstance(gradients, Tensor) else gradients):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"gradients are tensors, but item {k} is a {type(tensor).__name__}; "
                "leave out parameters without one, "
                "as in (p.grad for p in model.parameters() if p.grad is not None)"
            )
        if not tensor.is_floating_point() or tensor.layout != torch.strided:
            raise TypeError(
                f"gradients are dense floating tensors, but item {k} is {tensor.dtype}, {tensor.layout}; "
                "use .float() or .to_dense() first"
            )
        yield tensor.detach()
