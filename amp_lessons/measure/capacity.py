"""How much memory a device has, and how much of it is free."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")


def total_bytes(device: str | torch.device) -> int:
    """Return the memory of a GPU, or the main memory; ValueError where nobody tells how much that is."""
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[1]
    if not hasattr(os, "sysconf"):  # Windows
        raise ValueError("this operating system does not say how much memory it has; name an amount instead")
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(device: str | torch.device) -> int:
    """Return what is left of it for a new process; of main memory half, where only the total is known."""
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[0]
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _meminfo(), re.MULTILINE)
    return int(available[1]) * 1024 if available else total_bytes(place) // 2


def _meminfo() -> str:
    return _MEMINFO.read_text() if _MEMINFO.exists() else ""
