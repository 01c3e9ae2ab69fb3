"""A script or a module, to be run as ``__main__``, with what Python sets up for it."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any


@dataclass(frozen=True)
class Program:
    """What is run: its code, what ``sys.argv[0]`` says, and the attributes of its ``__main__``."""

    code: CodeType
    name: str
    attributes: dict[str, Any]

    def run(self, arguments: Sequence[str]) -> None:
        """Run it in a new ``__main__``, which stays: threads and exit handlers go on using it."""
        main = ModuleType("__main__")
        vars(main).update(self.attributes, __builtins__=builtins)
        sys.modules["__main__"] = main
        sys.argv[:] = [self.name, *arguments]
        exec(self.code, vars(main))


def script_program(path: str) -> Program:
    """Read a file. Raises OSError and SyntaxError as Python does."""
    file = os.path.abspath(path)
    _first_on_path(os.path.dirname(os.path.realpath(path)))
    with io.open_code(file) as opened:
        code = compile(opened.read(), file, "exec", dont_inherit=True)
    loader = SourceFileLoader("__main__", file)
    return Program(code, path, {"__file__": file, "__loader__": loader, "__cached__": None})


def module_program(name: str) -> Program:
    """Find a module, or a package's ``__main__``. Raises ImportError as Python does."""
    _first_on_path(os.getcwd())
    spec = _spec(name)
    if spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
    loader: Any = spec.loader
    attributes = {"__file__": spec.origin, "__loader__": loader, "__cached__": spec.cached}
    return Program(
        loader.get_code(spec.name),
        spec.origin or name,
        attributes | {"__spec__": spec, "__package__": spec.parent},
    )


def _spec(name: str) -> ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ModuleNotFoundError(f"No module named {name}", name=name)
    return spec


def _first_on_path(folder: str) -> None:
    """Put a folder where Python has put that of the audit's own process; ``python -P`` wants none there."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
