"""Islands of fp32: which modules compute something else under autocast, and running some of them in fp32."""

from amp_lessons.autocast.islands.fp32 import in_fp32
from amp_lessons.autocast.islands.search import TOLERANCE, Island, Islands, find_islands

__all__ = ["TOLERANCE", "Island", "Islands", "find_islands", "in_fp32"]
