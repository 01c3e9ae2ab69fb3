"""Count what becomes of gradients that are multiplied by a loss scale and cast to a narrow format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling.checks import check_dtype, check_scale
from amp_lessons.scaling.fates import FATES, Census
from amp_lessons.scaling.histogram import Counted, SortedTally, Tally, fate_thresholds, is_on_cpu, layout_of


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

    nothing = Counted(0, 0, {}, 0.0, 0.0)

    def results() -> tuple[Census, ...]:
        found = [[tally.counted for tally in tallies] for tallies in here.values()]
        found += [tally.counted for tally in there.values()]
        return tuple(
            sum((_census(*target, each[k], norms) for each in found), _census(*target, nothing, norms))
            for k, target in enumerate(targets)
        )

    return results


def _census(dtype: torch.dtype, scale: float, found: Counted, norms: bool) -> Census:
    both = (found.norm, found.lowest_norm) if norms else (None, None)
    fates = {
        fate: {binade: counts[k] for binade, counts in found.by_binade.items() if counts[k]}
        for k, fate in enumerate(FATES)
    }
    return Census(dtype_name(dtype), scale, found.zero, found.nonfinite, fates, *both)


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
