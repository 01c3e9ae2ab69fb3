"""Files that are only ever whole: replaced, set aside where damaged, and kept to one process at a time."""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

_FULL = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}

# what some network homes answer when they are asked for a lock
_HAS_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}


class InUseError(OSError):
    """Another process holds the lock of a file; the message names it."""


def try_writing(path: Path) -> None:
    """Raise OSError if ``replace`` could not write this file now, before somebody works for it."""
    unfinished = _unfinished(path)
    with unfinished.open("a"):
        pass
    unfinished.unlink()


def replace(path: Path, content: str | bytes) -> None:
    """Let ``content`` be all that the file holds; a killed process leaves the old file or the new one.

    The unfinished file has one name: whoever writes holds a lock (``acquired``). Raises OSError where nothing
    can be written, and leaves the old file.
    """
    unfinished = _unfinished(path)
    try:
        with unfinished.open("wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name without what it names
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nothing overwrites it; return its new path. Raises OSError."""
    aside = _damaged(path)
    os.replace(path, aside)
    return aside


def copy_aside(path: Path) -> Path:
    """Copy a file of which a part is damaged to where ``set_aside`` would rename it. Raises OSError."""
    aside = _damaged(path)
    replace(aside, path.read_text("utf-8"))
    return aside


def _damaged(path: Path) -> Path:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    return path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")


def were_set_aside(path: Path) -> list[Path]:
    """List what ``set_aside`` made of this file, today or earlier, oldest first; it may be a pattern."""
    return sorted(path.parent.glob(f"{path.stem}.damaged-*{path.suffix}"))


def acquired(path: Path, timeout_s: float = 0.0) -> AbstractContextManager[Any]:
    """Acquire the lock of a file; ``with`` lets go of it, and the system when the process ends, however.

    Raises InUseError if another process holds it for ``timeout_s`` seconds, and OSError where the file cannot
    be made. On a file system without locks there is nothing to hold, or to wait for: one process at a time
    works there.
    """
    # Here, because it loads asyncio: nobody should pay for that who only imports this package.
    from filelock import FileLock, Timeout

    try:
        return FileLock(path).acquire(timeout=timeout_s)
    except Timeout as error:
        raise InUseError(f"another process holds {path}") from error
    except OSError as error:
        if error.errno in _HAS_NO_LOCKS:
            return nullcontext()
        raise


def nearest_there(path: Path) -> Path:
    """Return ``path`` if it is there, else the nearest above it that is: where it would be made."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def may_write_in(folder: Path) -> bool:
    """Say whether the permissions of a folder let this user make something in it."""
    return os.access(folder, os.W_OK | os.X_OK)


def why_unwritable(error: OSError, path: Path) -> str:
    """Say in words why ``path`` could not be written."""
    if isinstance(error, InUseError):
        return str(error)
    if error.errno in _FULL:
        return f"the disk that holds {path} is full"
    if error.errno in _FORBIDDEN:
        return f"you may not write in {path}"
    return f"{path} cannot be written: {error.strerror or error}"
