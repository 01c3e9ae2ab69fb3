"""Another step on no device: it has one part, which is good."""

from __future__ import annotations

from tests.gpu_recording.pretended import run as pretend
from tools.gpu.found import Found, Place


def parts(place: Place) -> tuple[str, ...]:
    return ("good",)


def run(name: str, place: Place) -> Found:
    return pretend(name, place)
