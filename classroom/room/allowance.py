"""How often one token may ask: what comes faster than people click is refused before it reaches the hub."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_KEPT = 1000  # tokens remembered; who has not asked for longest is forgotten first


class Allowance:
    """So many requests at once, and so many a second after that, for each token."""

    def __init__(
        self, at_once: int = 40, per_second: float = 2.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Give every token its full allowance."""
        self._at_once, self._per_second, self._clock = at_once, per_second, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # token -> requests left, when

    def take(self, token: str) -> bool:
        """Take one request of a token's allowance; False if none is left."""
        key = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        now = self._clock()
        left, when = self._left.pop(key, (float(self._at_once), now))
        left = min(self._at_once, left + (now - when) * self._per_second)
        allowed = left >= 1
        self._left[key] = (left - 1 if allowed else left, now)
        if len(self._left) > _MOST_KEPT:
            self._left.popitem(last=False)
        return allowed
