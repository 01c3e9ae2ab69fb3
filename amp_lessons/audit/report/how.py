"""How an audit was done: with which versions, where, when, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class How:
    """The versions, the device, when it ``began`` (ISO 8601), and the seconds that it took.

    ``seconds`` is the time between beginning and the last that was seen; ``looking_seconds`` is how much of
    it the audit spent around the optimizers' steps, where nearly all of its own work is done.
    """

    torch: str
    amp_lessons: str
    python: str
    device: str
    began: str
    seconds: float
    looking_seconds: float


class Clock:
    """Measure how long a training takes, and how much of it is the audit's own work."""

    def __init__(self) -> None:
        self._began = datetime.now().astimezone().replace(microsecond=0)
        self._start = time.perf_counter()
        self._end: float | None = None
        self._looking_s = 0.0

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count what happens inside as the audit's work."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._looking_s += time.perf_counter() - start

    def stop(self) -> None:
        """Count no further."""
        self._end = time.perf_counter()

    def how(self, device: torch.device | None) -> How:
        """Say how the audit was done so far; ``device`` is the model's, None where none was seen."""
        import platform  # whoever only reads a report waits for none of these

        import torch

        return How(
            torch=torch.__version__,
            amp_lessons=_own_version(),
            python=platform.python_version(),
            device="no device" if device is None else device_name(device),
            began=self._began.isoformat(),
            seconds=(self._end or time.perf_counter()) - self._start,
            looking_seconds=self._looking_s,
        )


@cache
def device_name(device: torch.device) -> str:
    """Return the product's name of a CPU or a CUDA GPU, of others their type."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    from amp_lessons.devices import cpu_name  # only when a report is made

    return cpu_name()


@cache
def _own_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("amp-lessons")
    except metadata.PackageNotFoundError:
        return "(not installed)"
