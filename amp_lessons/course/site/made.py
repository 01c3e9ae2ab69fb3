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
# They decide what is asked, and nothing of what is made.
_HERE = {"course/site/made.py", "course/site/frames.py"}
_DEPENDS = "depends.json"
PART = "one more is made"  # what the process prints when a view is frozen, or the answers are there
_VERSIONS = ("torch", "numpy", "matplotlib", "ipywidgets", "anywidget")


def made(name: str, asked: str, kept: Path, step: Callable[[str], None]) -> Path:
    """Return the folder ``name`` in ``kept``, with what ``making`` has written there.

    ``asked`` is all that it depends on beside code of the package. ``step`` is called, with the name, as
    often as one more is made. Raises RuntimeError, with what was said, where it fails; what was kept stays.
    """
    folder = kept / name
    if not is_kept(name, asked, kept):
        _make(name, asked, folder, step)
    return folder


def _make(name: str, asked: str, folder: Path, step: Callable[[str], None]) -> None:
    """Make it in a folder beside, and put it in the place of the older one once it is whole."""
    with tempfile.TemporaryDirectory() as home:  # not the progress of whoever runs this
        new = Path(home) / "made"
        new.mkdir()
        command = [sys.executable, "-m", "amp_lessons.course.site.making", name, str(new)]
        # As many such processes run at once as there are cores: each takes one.
        env = {"OMP_NUM_THREADS": "1", **os.environ, "AMP_LESSONS_HOME": home, "TQDM_DISABLE": "1"}
        with tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(
                command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process:
                assert process.stdout is not None
                line = ""
                for line in process.stdout:
                    if line.rstrip() == PART:
                        step(name)
            if process.returncode:
                errors.seek(0)
                raise RuntimeError(f"{name} cannot be made:\n{errors.read()[-3000:]}")
        files = json.loads(line)
        (new / _DEPENDS).write_text(json.dumps(_depends(asked, files)), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder)


def is_kept(name: str, asked: str, kept: Path) -> bool:
    """Whether what was made stands in ``kept``, and would be made the same again."""
    try:
        noted: dict[str, Any] = json.loads((kept / name / _DEPENDS).read_text("utf-8"))
        return bool(noted == _depends(asked, noted["files"]))
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
