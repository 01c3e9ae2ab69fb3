"""How far the weights of two runs moved: standing still beside a run that moves is a difference of its own.

Rounding moves weights by little of what they are, but it can keep them where they are altogether: the sum of
all that was lost is not seen in the distance of the runs' weights before long, and in the distance that each
has covered at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from amp_lessons.audit.comparing.recording import Recording

_MUCH_LESS = 0.5  # of the other run's way: no rounding of updates that arrive takes half of them
_LEAST_STEPS = 1


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
    if a.skipped != b.skipped or len(steps) <= _LEAST_STEPS:
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
