"""Mixed precision training with PyTorch, taught by measuring it.

Import the rooms you need: ``from amp_lessons import formats, scaling, views``. Importing the package itself
loads nothing, so it costs nothing; matplotlib and ipywidgets load when the first view is made.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

# what lessons and other people's scripts import from here, wherever it lies
_LIES_IN = {name: f"{__name__}.material.{name}" for name in ("charlm", "data", "models", "race")} | {
    "progress": f"{__name__}.keeping.progress"
}


def __getattr__(name: str) -> ModuleType:
    if name not in _LIES_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(_LIES_IN[name])
