"""A process group of any size in one process, whose collectives do nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def fake_group(world_size: int) -> Iterator[DeviceMesh]:
    """Be rank 0 of ``world_size`` ranks that are not there. Raises RuntimeError inside a real group.

    The mesh is for the CPU. Make it before any ``FakeTensorMode``: it looks at the values of tensors.
    """
    if dist.is_initialized():
        raise RuntimeError(
            "this process is a rank of a group already; ask before init_process_group, or after "
            "destroy_process_group"
        )
    excepthook = sys.excepthook  # which each init_process_group wraps, so that tracebacks name the rank
    dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (world_size,))
    finally:
        dist.destroy_process_group()
        sys.excepthook = excepthook
