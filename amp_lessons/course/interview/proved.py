"""What proofs have computed, kept on disk as long as nothing changes on which they depend.

A proof depends on its cell, on the source of the rooms that the cell imports and of those below, on the
packages imported there and on the processor. Answers and exports read what is kept; ``prove`` always runs.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import amp_lessons
from amp_lessons._base import files
from amp_lessons.course import progress
from amp_lessons.course.interview.proving import Proof, proof_cell, prove_cell

_PACKAGE = Path(amp_lessons.__file__).parent
_DATA = {".py", ".json", ".yaml"}


@functools.cache
def proved(question_id: str, seed: int | None = None) -> Proof:
    """Return the proof of a question as it was last run; it runs now if anything has changed since then.

    What does not hold is not kept, and where nothing can be kept it runs in each process once.
    """
    cell = proof_cell(question_id, seed)
    key = depends_on(cell)
    values = _kept(question_id, key)
    if values is not None:
        return Proof(question_id, cell, values)
    proof = prove_cell(question_id, seed)
    if proof.holds:
        _keep(question_id, key, proof.values)
    return proof


def depends_on(cell: str) -> str:
    """Return a digest of all that the outcome of ``cell`` depends on."""
    digest = hashlib.sha256(f"{cell}\n{_machine()}".encode())
    packages: set[str] = set()
    for path in sorted(_sources(cell, packages)):
        digest.update(_digest(path))
    for name in sorted(packages):
        digest.update(f"{name} {_version(name)}\n".encode())
    return digest.hexdigest()


def _kept(question_id: str, key: str) -> Mapping[str, Any] | None:
    try:
        entry = json.loads(_path(question_id).read_text("utf-8"))
        return entry["values"] if entry["key"] == key else None
    except (OSError, ValueError, TypeError, KeyError, progress.ProgressError):
        return None  # nothing is lost: it runs again


def _keep(question_id: str, key: str, values: Mapping[str, Any]) -> None:
    if not all(each is None or isinstance(each, (str, int, float)) for each in values.values()):
        return
    try:
        path = _path(question_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, json.dumps({"key": key, "values": dict(values)}))
    except (OSError, progress.ProgressError):
        pass  # it runs again another time


def _path(question_id: str) -> Path:
    return progress.home() / "proofs" / f"{question_id}.json"


@functools.cache
def _machine() -> str:
    """Say what the last digits of a result may depend on beside the code."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return f"{sys.version} {torch.__version__} {platform.machine()} {capability} {torch.cuda.is_available()}"


def _sources(cell: str, packages: set[str]) -> set[Path]:
    """Return the files of this package that a cell imports, and those import; note other packages."""
    found: set[Path] = set()
    waiting = set(_imported(cell))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        if not name.startswith("amp_lessons"):
            packages.add(name.partition(".")[0])
            continue
        new = _files_of(name) - found
        found |= new
        waiting |= {each for path in new if path.suffix == ".py" for each in _imports(path)} - seen
    return found


@functools.cache
def _files_of(module: str) -> frozenset[Path]:
    """Return a module's file, or all files of a room: its names are loaded from anywhere in it."""
    path = _PACKAGE.joinpath(*module.split(".")[1:])
    if path == _PACKAGE:
        return frozenset()
    if path.is_dir():
        return frozenset(each for each in path.rglob("*") if each.suffix in _DATA)
    source = path.with_suffix(".py")
    return frozenset({source} if source.is_file() else ())


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    return frozenset(_imported(path.read_text("utf-8")))


def _imported(source: str) -> Iterator[str]:
    """Yield the modules that ``source`` imports; a name that is imported may be a module, too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""  # of the standard library, or not there
