"""Learners' processes have to reach Python and the course, which may lie in a folder that is closed to them.

Python in root's home (pyenv, conda) is the usual case. ``chmod`` would open that home to everybody. Instead,
in a mount namespace that only the hub and learners' servers see, the closed folder is covered by an empty one
in which there is nothing but the way to what is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

INSIDE = "AMP_CLASSROOM_NAMESPACE"
CHECKOUT = Path(__file__).resolve().parents[2]


def needed() -> list[Path]:
    """Return the folders that learners' processes read: Python, its environment, the course."""
    return sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), CHECKOUT})


def closed_above(path: Path) -> Path | None:
    """Return the uppermost folder on the way to ``path`` that others may not pass, if there is one."""
    way = [*reversed(path.parents), path]
    return next((folder for folder in way if not folder.stat().st_mode & 0o001), None)


def closed(paths: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the closed folders, each with what is needed of it."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        if (folder := closed_above(path)) is not None:
            found.setdefault(folder, []).append(path)
    return found


def enter_namespace() -> None:
    """Begin this command again where mounts are nobody else's. Raises OSError where that is not allowed."""
    os.environ[INSIDE] = "1"
    command = [sys.executable, "-m", "classroom.jupyterhub", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", *command])


def uncover(folder: Path, wanted: Iterable[Path]) -> None:
    """Cover a closed folder by an empty one, and let what is ``wanted`` of it appear there, unwritable."""
    with tempfile.TemporaryDirectory() as aside:
        held = [(path, Path(aside) / str(number)) for number, path in enumerate(wanted)]
        for path, place in held:
            place.mkdir()
            _mount("--bind", str(path), str(place))
        _mount("-t", "tmpfs", "-o", "mode=0711", "none", str(folder))
        for path, place in held:
            path.mkdir(parents=True, mode=0o711)
            _mount("--move", str(place), str(path))
    os.chdir(CHECKOUT)  # what was the working folder lies below the cover


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)
