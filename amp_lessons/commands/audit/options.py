"""What the parent tells the child, on its command line: a variable would reach the script's own children."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Options:
    """Where the child keeps what it has seen, how closely it looks, when it ends, and what it runs."""

    kept: str
    every: int
    steps: int | None
    script: str | None
    module: str | None

    def as_argument(self) -> str:
        """Return all of it as one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of_argument(cls, argument: str) -> Options:
        """Read what ``as_argument`` has written."""
        return cls(**json.loads(argument))
