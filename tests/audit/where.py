"""Where a training's numbers lie: on the CPU, on a GPU, or on the CPU while all is done as if on a device."""

from __future__ import annotations

import pytest
import torch

WHERE = [
    "cpu",
    "as if on a device",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
        ],
    ),
]
