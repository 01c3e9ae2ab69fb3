"""What ``amp-lessons compare`` hands over to the process that runs a script."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Options:
    """What is run, in which precision ("" for the script's own), and where its recording is kept.

    ``steps`` end it, every ``every``-th is recorded, for None ever rarer ones. ``between`` are the files of
    two recordings by whose formats the run is nudged, none for a run that is only recorded.
    """

    kept: str
    script: str
    is_module: bool = False
    steps: int = 10
    every: int | None = None
    precision: str = ""
    between: tuple[str, ...] = ()

    def as_argument(self) -> str:
        """Return all of it as one argument."""
        return json.dumps(asdict(self))

    @classmethod
    def of_argument(cls, argument: str) -> Options:
        """Read what ``as_argument`` has written."""
        return cls(**json.loads(argument))
