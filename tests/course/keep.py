"""One act on the learner's record, by the name of its method."""

from __future__ import annotations

from typing import Any

from amp_lessons.course import progress


def keep(act: str, *args: Any, **options: Any) -> str:
    """Let the learner's record do ``act``; return what the learner should know."""
    return progress.change(lambda kept: getattr(kept, act)(*args, **options))
