"""Everything that is drawn: a view, its picture and its words in one module.

Names load when they are first used, so that importing this package costs neither matplotlib nor ipywidgets;
``__init__.pyi`` says where each of them lies.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return _load(name)
