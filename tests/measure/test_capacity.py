"""How much memory there is, from a pretended /proc/meminfo and the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from amp_lessons import devices
from amp_lessons.measure import capacity


def test_free_main_memory_is_what_linux_calls_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2000 kB\nMemFree:  500 kB\nMemAvailable:   1000 kB\n")
    monkeypatch.setattr(capacity, "_MEMINFO", meminfo)
    assert capacity.free_bytes("cpu") == 1000 * 1024


def test_where_only_the_total_is_known_half_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_MEMINFO", tmp_path / "missing")
    assert capacity.free_bytes("cpu") == devices.describe().cpu.memory_mib * 2**19


def test_here_some_of_the_total_is_free() -> None:
    assert 0 < capacity.free_bytes(torch.device("cpu")) <= devices.describe().cpu.memory_mib * 2**20
