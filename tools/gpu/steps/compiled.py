"""``amp-lessons bench``, compiled: last, because a compiler takes its time."""

from __future__ import annotations

from tools.gpu.found import Found, Place
from tools.gpu.steps import bench

parts = bench.parts


def run(name: str, place: Place) -> Found:
    """Measure one case."""
    return bench.run(name, place, "compiled")
