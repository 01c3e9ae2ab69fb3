"""A mark for tests that compare the real clock with a bound, which a busy machine can overstep."""

from __future__ import annotations

import pytest

# A measurement that is wrong fails three times in a row; a disturbance that comes and goes does not.
real_clock = pytest.mark.flaky(reruns=2, reruns_delay=1)
