"""``amp-lessons lab``: JupyterLab, opened on the first lesson with the checkout as its root.

Token and localhost binding stay as Jupyter sets them. Two things differ from a bare ``jupyter lab``: the page
it lands on, and JupyterLab's question about news, which is answered with no.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

FIRST_NOTEBOOK = "notebooks/00_start_here.ipynb"
JUPYTER_CONFIG = Path(__file__).parent / "jupyter_config"

_NO_LESSONS = (
    f"{FIRST_NOTEBOOK} is neither in this folder nor above it. The lessons do not come with the installed "
    "package: clone the repository, change into it and run `make lab`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take every option of ``jupyter lab``, such as ``--no-browser`` or ``--port 8899``."""
    parser.epilog = "Every other option goes to JupyterLab, for example --no-browser or --port 8899."
    parser.set_defaults(passed_on=[])


def run(args: argparse.Namespace) -> int:
    """Start JupyterLab and stay with it until it ends; 1 with a sentence on stderr where it cannot start."""
    root = find_course(Path.cwd())
    if root is None:
        return _refuse(_NO_LESSONS)
    if not jupyterlab_installed():
        return _refuse(
            f"JupyterLab is not installed for this Python. Install it with: {install_jupyterlab()}"
        )
    os.environ["JUPYTER_CONFIG_PATH"] = config_path(os.environ.get("JUPYTER_CONFIG_PATH", ""))
    from jupyterlab.labapp import main as start_jupyterlab

    start_jupyterlab([*server_options(root), *args.passed_on])
    return 0


def find_course(start: Path) -> Path | None:
    """Return the folder that holds the lessons: ``start``, one above it, or this package's own checkout."""
    return next((folder for folder in _candidates(start) if (folder / FIRST_NOTEBOOK).is_file()), None)


def server_options(root: Path) -> list[str]:
    """Return the options that serve ``root`` and land on the first lesson.

    Naming the notebook on the command line instead would make ``notebooks/`` the root of the server.
    """
    return [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}"]


def config_path(already_set: str) -> str:
    """Return a JUPYTER_CONFIG_PATH that adds this course's settings behind those that are ``already_set``."""
    return os.pathsep.join(filter(None, [already_set, str(JUPYTER_CONFIG)]))


def jupyterlab_installed() -> bool:
    """Say whether this Python can start JupyterLab."""
    return importlib.util.find_spec("jupyterlab") is not None


def install_jupyterlab() -> str:
    """Return the command that installs JupyterLab for this Python."""
    return f"{sys.executable} -m pip install jupyterlab ipykernel"


def _candidates(start: Path) -> Iterator[Path]:
    yield from (start, *start.parents, Path(__file__).parents[2])


def _refuse(reason: str) -> int:
    print(reason, file=sys.stderr)
    return 1
