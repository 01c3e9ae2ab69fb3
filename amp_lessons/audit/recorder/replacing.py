"""Replace a method of a class for a while, and undo exactly that."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any
from unittest import mock


def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> contextlib.AbstractContextManager[Any]:
    """Replace ``owner.name`` by what ``wrap`` makes of it, and undo exactly that afterwards."""
    original = getattr(owner, name)
    # whoever calls it with wrong arguments is told its name, not the spy's
    return mock.patch.object(owner, name, functools.update_wrapper(wrap(original), original))
