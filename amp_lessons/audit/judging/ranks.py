"""Rules on what ranks share; what shows only beside another rank is found where their reports are joined."""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons.audit import catalogue
from amp_lessons.audit.judging.rule import Memory, Verdict, likely, on
from amp_lessons.audit.recorder import events


@on(events.ShardsInHalf)
def masters_in_half(event: events.ShardsInHalf, memory: Memory) -> Iterator[Verdict]:
    """Suspect shards in 16 bits: they are the only copy of the weights that an optimizer steps."""
    why = (
        f"`{event.layer}` has some; an optimizer that keeps fp32 copies, or rounds at random, needs no other"
    )
    yield likely(catalogue.ranks.masters_not_fp32(str(event.dtype)), why)
