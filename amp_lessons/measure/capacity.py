"""How much memory of a device is free."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from amp_lessons import devices

_MEMINFO = Path("/proc/meminfo")


def free_bytes(device: str | torch.device) -> int:
    """Return how much memory ``device`` has left; of main memory half, where only the total is known.

    Raise ValueError where the operating system tells neither.
    """
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[0]
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _meminfo(), re.MULTILINE)
    if available:
        return int(available[1]) * 1024
    total_mib = devices.describe().cpu.memory_mib
    if total_mib is None:
        raise ValueError("this operating system does not say how much memory it has")
    return total_mib * 2**20 // 2


def _meminfo() -> str:
    return _MEMINFO.read_text() if _MEMINFO.exists() else ""
