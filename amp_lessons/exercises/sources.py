"""The source of a solution, as a learner would type it into a cell."""

from __future__ import annotations

import inspect
from typing import Any

# the solutions are plain lesson code without annotations; the comment that tells mypy so is not for learners
_FOR_MYPY = "  # type: ignore[no-untyped-def]"


def source_of(*objects: Any, imports: str = "import torch") -> str:
    """Return a cell that defines these functions or classes, with the imports they need."""
    parts = [inspect.getsource(each).replace(_FOR_MYPY, "") for each in objects]
    return "\n\n".join([f"{imports}\n" if imports else "", *parts]).lstrip("\n")
