"""What one process of a learner's may take, set by the process itself before it becomes the learner's.

These limits hold on every Linux, for every process by itself. What all of a learner's processes take
together is limited by a control group (``cgroups``), or watched over where there is none (``watch``).
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """``memory_bytes`` and ``file_bytes`` of a process, ``tasks`` (processes and threads) of an account.

    Memory is RLIMIT_DATA: what a process has asked for and may write. An allocation beyond it fails, so that
    Python raises MemoryError and PyTorch "can't allocate memory": the cell ends, the kernel stays.
    RLIMIT_AS would also count what is only mapped: 1.6 GiB for lesson 03, of which 0.45 are ever touched.
    """

    memory_bytes: int | None = None
    file_bytes: int | None = 2048 * MIB
    tasks: int | None = None
    nice: int = 5

    def apply(self) -> None:
        """Set them for this process and all that it will start; nobody but root can raise them again."""
        for kind, value in (
            (resource.RLIMIT_DATA, self.memory_bytes),
            (resource.RLIMIT_FSIZE, self.file_bytes),
            (resource.RLIMIT_NPROC, self.tasks),
            (resource.RLIMIT_CORE, 0),  # a core file would fill the disk, and hold what was in memory
        ):
            if value is not None:
                _lower(kind, value)
        os.nice(self.nice)  # behind the hub and the proxy, which everybody needs


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))
