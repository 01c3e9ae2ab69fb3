"""Be the parent: ``python -m amp_lessons.kernels --listen /run/amp-lessons/kernels --members learners``."""

from __future__ import annotations

import argparse
import grp
import os
import socket
import stat
import sys
from pathlib import Path

from amp_lessons.kernels.parent import Parent, complain
from amp_lessons.kernels.warm import LIBRARIES, MODELS, PINNED, CannotForkError, warm_up

_BARE = "AMP_LESSONS_BARE"
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH")  # of root's environment
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def main() -> int:
    """Import everything, then fork a kernel for whoever asks; 1 with a sentence where that cannot be."""
    chosen = _parser().parse_args()
    everybodys = chosen.listen is not None
    try:
        if everybodys and os.geteuid() == 0:
            _refuse_what_others_may_write()
        environment = _surroundings(chosen.listen)
        warm_up((*LIBRARIES, *MODELS) if everybodys else LIBRARIES)
        listener = _listening(chosen.listen, chosen.members) if everybodys else _inherited(chosen.inherited)
    except (CannotForkError, OSError, KeyError) as error:
        complain(f"no kernels are forked here: {error}")
        return 1
    if everybodys:
        complain(f"kernels are forked for those who ask at {chosen.listen}")
    Parent(listener, environment, lifeline=None if everybodys else 0, members=chosen.members).serve()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m amp_lessons.kernels", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", type=Path, help="serve all accounts, at this Unix socket")
    where.add_argument("--inherited", type=int, help="serve whoever started this, at this open socket")
    parser.add_argument("--members", default="", help="answer accounts of this group alone")
    return parser


def _surroundings(listen: Path | None) -> dict[str, str]:
    """Begin again with PINNED set before anything is loaded, and where all are served, with little else.

    What a process began with stays readable in ``/proc`` by its forks, so clearing would not be enough.
    """
    if os.environ.pop(_BARE, None) != "1":
        os.chdir("/")
        os.execve(sys.executable, _same_command(), {**_environment(listen), **PINNED, _BARE: "1"})
    if listen is not None:
        os.umask(0o022)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", "/")]
    return dict(os.environ)


def _environment(listen: Path | None) -> dict[str, str]:
    if listen is None:
        return dict(os.environ)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "HOME": "/", "MPLCONFIGDIR": str(listen.absolute().parent / "matplotlib")}


def _same_command() -> list[str]:
    arguments = list(sys.argv[1:])
    if "--listen" in arguments:  # the folder changes
        position = arguments.index("--listen") + 1
        arguments[position] = str(Path(arguments[position]).absolute())
    return [sys.executable, "-m", "amp_lessons.kernels", *arguments]


def _refuse_what_others_may_write() -> None:
    """Refuse to be root and run code that somebody else can change. Raises CannotForkError."""
    for place in {*map(Path, sys.path), Path(sys.prefix), Path(sys.executable), Path(__file__).parents[1]}:
        if place.exists() and (place.stat().st_uid or place.stat().st_mode & _OTHERS_WRITE):
            raise CannotForkError(f"others than root may write {place}, from which root would import")


def _listening(path: Path, members: str) -> socket.socket:
    """Listen at a path in a folder of our own; a socket that an earlier parent left is replaced."""
    if path.parent.stat().st_uid != os.geteuid() or path.parent.stat().st_mode & _OTHERS_WRITE:
        raise CannotForkError(f"others may write in {path.parent}, and so put a socket of theirs there")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o660 if members else 0o666)
    if members:
        os.chown(path, -1, grp.getgrnam(members).gr_gid)
    listener.listen(128)
    return listener


def _inherited(descriptor: int) -> socket.socket:
    listener = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    return listener


if __name__ == "__main__":
    sys.exit(main())
