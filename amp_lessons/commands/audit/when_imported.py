"""Do something as soon as a module has been imported, and nothing before."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once the module ``name`` is complete; at once if it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(MetaPathFinder):
    """Let others find the module, and add to what its loader does."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _after(spec.loader, self._then)
        return spec


def _after(loader: Any, then: Callable[[], None]) -> None:
    """Replace the method of this one loader, until it has run."""
    original = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module
        original(module)
        then()

    loader.exec_module = exec_module
