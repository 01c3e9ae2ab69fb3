"""The device on which a training loop is watched."""

from __future__ import annotations

import torch


def device_type() -> str:
    """Name the device that checks run on: the GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"
