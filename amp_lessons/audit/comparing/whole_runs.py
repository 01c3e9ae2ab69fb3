"""Two runs as wholes: how they differ before anything is computed, and how far their weights move.

Standing still beside a run that moves is a difference of its own. Rounding moves weights by little of what
they are, but it can keep them where they are altogether: the sum of all that was lost is not seen in the
distance of the runs' weights before long, and in the distance that each has covered at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from amp_lessons._base.text.words import counted, number
from amp_lessons.audit.comparing.recording import Recording
from amp_lessons.audit.comparing.sketches import relative_difference
from amp_lessons.devices import MATMUL_SWITCH

_CHANGE_NUMBERS = (  # what environment variables that do so begin with
    "ATEN_", "CUBLAS_", "CUDA_", "CUDNN_", "MKL_", "NCCL_ALGO", "NCCL_PROTO", "NVIDIA_TF32", "NVTE_", "OMP_",
    "PYTHONHASHSEED", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "XLA_",
)  # fmt: skip
_DRAWN = 0.01  # apart: other numbers were drawn, and not the same cast
_MOST_NAMED = 3
_MUCH_LESS = 0.5  # of the other run's way: no rounding of updates that arrive takes half of them


def settings_now() -> dict[str, str]:
    """Return what is set now and changes numbers, by name: PyTorch's switches, its seed, the environment."""
    cudnn = torch.backends.cudnn
    found = {
        "seed": f"{torch.initial_seed()}",
        "default dtype": f"{torch.get_default_dtype()}".removeprefix("torch."),
        "precision of fp32 products": f"{MATMUL_SWITCH.read()}",
        "deterministic algorithms": f"{torch.are_deterministic_algorithms_enabled()}",
        "cudnn.benchmark": f"{cudnn.benchmark}",
        "16-bit sums in CUDA's products": (
            f"{torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction}, "
            f"{torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction}"
        ),
    }
    return found | {each: value for each, value in os.environ.items() if each.startswith(_CHANGE_NUMBERS)}


def differences_before(a: Recording, b: Recording) -> Iterator[str]:
    """Say what is otherwise in the second run before anything is computed; nothing where nothing is."""
    for what in ("torch", "python", "device", "threads"):
        yield from _otherwise(what, f"{getattr(a.how, what)}", f"{getattr(b.how, what)}")
    if a.how.settings and b.how.settings:  # recordings of older versions have none
        for name in dict.fromkeys([*a.how.settings, *b.how.settings]):
            yield from _otherwise(name, *(run.how.settings.get(name, "not set") for run in (a, b)))
    yield from _first_weights(a, b)
    yield from _batches(a, b)


def _otherwise(what: str, first: str, second: str) -> Iterator[str]:
    if first != second:
        yield f"{what}: {first} in the first run, {second} in the second."


def _first_weights(a: Recording, b: Recording) -> Iterator[str]:
    theirs = {each.name: each for each in b.by_step.get(0, ())}
    apart = {
        each.name: relative_difference(a.sketches[each.value], b.sketches[theirs[each.name].value])
        for each in a.by_step.get(0, ())
        if each.name in theirs
    }
    other = sorted((name for name in apart if apart[name] > 0), key=lambda name: -apart[name])
    if other:
        how = "drawn or loaded otherwise" if apart[other[0]] > _DRAWN else "as a cast may leave them"
        named = ", ".join(f"`{each}` ({number(apart[each], 2)})" for each in other[:_MOST_NAMED])
        yield (
            f"{len(other)} of {counted(len(apart), 'weight')} and buffers are other numbers before the first "
            f"step, {how}; most of all {named}."
        )


def _batches(a: Recording, b: Recording) -> Iterator[str]:
    ours, theirs = _given(a), _given(b)
    steps = sorted(ours.keys() & theirs.keys())
    other = [step for step in steps if _are_apart(ours[step], theirs[step])]
    if not other:
        return
    reordered = all(any(not _are_apart(ours[step], theirs[each]) for each in steps) for step in steps)
    what = "the same batches, in another order" if reordered else "other numbers"
    yield f"What the model is given: {what}, from step {other[0] + 1} on."


def _given(run: Recording) -> dict[int, np.ndarray]:
    """Return what the first call of a step was given, as one row of sketches, by step."""
    found: dict[int, np.ndarray] = {}
    for call in run.calls:
        if call.parent < 0 and call.inputs and call.step not in found:
            found[call.step] = np.stack([run.sketches[each] for each in call.inputs.values()])
    return found


def _are_apart(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape != other.shape or relative_difference(one, other) > _DRAWN


@dataclass(frozen=True)
class Movement:
    """How far all weights that both runs train moved, from before one step to before another.

    ``a`` and ``b`` are norms of the way over the norm of the weights; ``still_in_a`` names those that the
    first run left exactly as they were and the second moved, ``still_in_b`` the reverse.
    """

    first_step: int
    last_step: int
    a: float
    b: float
    still_in_a: tuple[str, ...]
    still_in_b: tuple[str, ...]

    @property
    def apart(self) -> bool:
        """Whether one run goes less than half as far as the other."""
        return min(self.a, self.b) < _MUCH_LESS * max(self.a, self.b)


def movement(a: Recording, b: Recording) -> Movement | None:
    """Return how far the weights of two runs moved, None where that cannot be compared.

    Where a scaler skipped other steps in one run than in the other, the weights were asked to go less far.
    """
    ours, theirs = _by_name(a), _by_name(b)
    steps = sorted({s for n in ours.keys() & theirs.keys() for s in ours[n].keys() & theirs[n].keys()})
    if a.skipped != b.skipped or len(steps) < 2:
        return None
    first, last = steps[0], steps[-1]
    ways: dict[str, tuple[float, float]] = {}
    norms = [0.0, 0.0]
    for name in ours.keys() & theirs.keys():
        if all(each in run[name] for run in (ours, theirs) for each in (first, last)):
            ways[name] = _way(ours[name], first, last), _way(theirs[name], first, last)
            norms[0] += float(np.square(ours[name][first]).sum())
            norms[1] += float(np.square(theirs[name][first]).sum())
    if not ways or not all(norms):
        return None
    gone = [math.sqrt(sum(way[i] ** 2 for way in ways.values()) / norms[i]) for i in (0, 1)]
    still = [tuple(sorted(n for n, way in ways.items() if way[i] == 0.0 < way[1 - i])) for i in (0, 1)]
    return Movement(first, last, gone[0], gone[1], still[0], still[1])


def _by_name(run: Recording) -> dict[str, dict[int, np.ndarray]]:
    """Return the sketches of weights that have a gradient at some step, by name and step."""
    trained = {each.name for each in run.weights if each.gradient >= 0}
    found: dict[str, dict[int, np.ndarray]] = {}
    for each in run.weights:
        if each.name in trained:
            found.setdefault(each.name, {})[each.step] = run.sketches[each.value]
    return found


def _way(sketches: dict[int, np.ndarray], first: int, last: int) -> float:
    return float(np.linalg.norm(sketches[last] - sketches[first]))
