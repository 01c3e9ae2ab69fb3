"""What takes long is made in a process of its own, and kept until something it depends on has changed.

The process says which files of the package it has loaded. With what it was asked, PyTorch's version and those
files as they were, what it makes is as it was, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import amp_lessons

_PACKAGE = Path(amp_lessons.__file__).resolve().parent
_HERE = {"site/made.py", "site/frames.py"}  # they decide what is asked, and nothing of what is made
_DEPENDS = "depends.json"
_VERSIONS = ("torch", "numpy", "matplotlib", "ipywidgets", "anywidget")


def made(name: str, asked: str, kept: Path, say: Callable[[str], None]) -> Path:
    """Return the folder ``name`` in ``kept``, with what ``making`` has written there.

    ``asked`` is all that it depends on beside code of the package. Before something is made, ``say`` is told.
    Raises RuntimeError, with what was said, where it fails; what was kept then stays.
    """
    folder = kept / name
    if not _is_valid(folder, asked):
        say(f"{name}: to be computed, and then kept in {kept} …")
        _make(name, asked, folder)
    return folder


def _make(name: str, asked: str, folder: Path) -> None:
    """Make it in a folder beside, and put it in the place of the older one once it is whole."""
    with tempfile.TemporaryDirectory() as home:  # not the progress of whoever runs this
        new = Path(home) / "made"
        new.mkdir()
        command = [sys.executable, "-m", "amp_lessons.course.site.making", name, str(new)]
        # As many such processes run at once as there are cores: each takes one.
        env = {"OMP_NUM_THREADS": "1", **os.environ, "AMP_LESSONS_HOME": home, "TQDM_DISABLE": "1"}
        ran = subprocess.run(command, env=env, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{name} cannot be made:\n{ran.stderr[-3000:]}")
        files = json.loads(ran.stdout.splitlines()[-1])
        (new / _DEPENDS).write_text(json.dumps(_depends(asked, files)), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder)


def _is_valid(folder: Path, asked: str) -> bool:
    try:
        kept: dict[str, Any] = json.loads((folder / _DEPENDS).read_text("utf-8"))
        return bool(kept == _depends(asked, kept["files"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _depends(asked: str, files: Iterable[str]) -> dict[str, Any]:
    return {
        "asked": _hash(asked),
        "versions": {name: metadata.version(name) for name in _VERSIONS},
        "files": {name: _hash((_PACKAGE / name).read_text("utf-8")) for name in files},
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def loaded() -> list[str]:
    """List the files of the package that this process has loaded, by their paths in it."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(file).resolve() for file in files if file}
    inside = {path.relative_to(_PACKAGE).as_posix() for path in paths if _PACKAGE in path.parents}
    return sorted(inside - _HERE)
