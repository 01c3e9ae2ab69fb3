"""Where a training's numbers lie: on the CPU, on a GPU, or on the CPU while all is done as if on a device."""

from __future__ import annotations

import pytest

from tests.cuda import CUDA

WHERE = ["cpu", pytest.param("as if on a device", marks=pytest.mark.thorough), CUDA]
