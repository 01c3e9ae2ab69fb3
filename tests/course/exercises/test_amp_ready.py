"""The models of ``amp_ready`` have the islands that they are said to have, and none near the limit."""

from __future__ import annotations

import pytest
import torch

from amp_lessons.autocast import find_islands
from amp_lessons.course.exercises.amp_ready.check import KINDS
from amp_lessons.course.exercises.amp_ready.models_there import built


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", [11, 23, 77_001])
@pytest.mark.parametrize("kind", KINDS)
def test_an_instrument_that_knows_nothing_of_them_finds_the_same_islands(kind, seed):
    model, batch, block = built(kind, seed)
    for tolerance in (0.03, 0.07):
        found = find_islands(model, batch, dtype=torch.float16, tolerance=tolerance)
        assert set(found.names) == {block + below for below in KINDS[kind][0]}
