"""The learner's own copy of the lessons: made whole or not at all, brought up to date, never overwritten.

Beside the lessons lies what was delivered: a digest of each, as it came. A lesson that still says what was
delivered gives way to a new version of it. One that says anything else was touched; it stays, and the new
version is put beside it. So nothing is lost even where that list is, and a process that is killed leaves
whole files: a new folder gets its name when all of it is there, a file when all of it is written.

Lessons come as ``fresh`` makes them, with nothing run. Two versions of the course that differ only in what
their cells show are the same to a learner: nothing comes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from amp_lessons._base import files
from amp_lessons.course.lessons import fresh
from amp_lessons.course.lessons.shipped import checkout_above, lessons, numbered

FOLDER = "my_lessons"
FOR_ASSISTANTS = Path(__file__).parent / "AGENTS.md"  # brought once, when the folder becomes a copy
NEEDED_BYTES = 50 * 2**20  # the lessons twice, as a learner leaves them, with room for what they store
_OURS = ".amp-lessons"
_UNFINISHED = ".unfinished"
_LOCK_TIMEOUT_S = 30.0
_HOUR_S = 3600.0

# What differs between two notebooks in which nobody has written or run anything.
_NOT_THE_LEARNERS = {"metadata", "execution_count", "id"}


@dataclass(frozen=True)
class Brought:
    """What a visit of the course to a folder came to.

    ``made`` says that the folder was no copy before. ``added`` were not there, ``updated`` were as they had
    come; ``beside`` are the new versions of lessons that the learner has touched, by the lesson's name.
    """

    folder: Path
    made: bool = False
    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    beside: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Reset:
    """A lesson that is as it came again; ``kept`` is what the learner had made of it, if it was touched."""

    lesson: Path
    kept: Path | None


def folder_for(start: Path) -> Path:
    """Return where a learner who is at ``start`` has, or will have, the copy.

    The copy that ``start`` lies in; else ``my_lessons``, in the checkout or here.
    """
    around = next((folder for folder in (start, *start.parents) if is_copy(folder)), None)
    return around or (checkout_above(start) or start) / FOLDER


def is_copy(folder: Path) -> bool:
    """Return whether a folder is a learner's copy."""
    return _list_of(folder).is_file()


def obstacle(folder: Path) -> str:
    """Explain why a copy could not be made or brought up to date in ``folder``; nothing if it could."""
    there = files.nearest_there(folder)
    if not there.is_dir():
        return f"{there} is a file, and has to be a folder"
    if not files.may_write_in(there):
        return f"you may not write in {there}"
    free = shutil.disk_usage(there).free
    return f"only {free / 2**20:.0f} MiB are free on the disk of {there}" if free < NEEDED_BYTES else ""


def bring(folder: Path, source: Path) -> Brought:
    """Bring the lessons in ``source`` into a learner's ``folder``, which is made if it is not there.

    Raises OSError where nothing can be written (what was there is left as it was), and InUseError if another
    process brings lessons there for longer than half a minute.
    """
    _remove_unfinished(folder)
    if not folder.exists() and _made_whole(folder, source):
        return Brought(folder, made=True)
    with _locked(folder):
        return _brought_up_to_date(folder, source)


def reset(folder: Path, source: Path, number: str) -> Reset:
    """Make one lesson of the copy what it was when it came, and keep what the learner made of it beside it.

    ``number`` is that of the lesson, ``"03"`` or ``"3"``. Raises ValueError if there is no such lesson, else
    as ``bring`` does.
    """
    original = numbered(source, number)
    mine, text = folder / original.name, fresh.text_of(original)
    new = _digest(text.encode())
    with _locked(folder):
        delivered = _delivered(folder)
        as_it_came = (None, new, delivered.get(mine.name))
        kept = None if _digest_if_there(mine) in as_it_came else _kept_aside(mine)
        files.replace(mine, text)
        for beside in _new_versions(mine):
            if _digest_if_there(beside) == delivered.get(beside.name):
                beside.unlink()  # it has become the lesson, or an older one than that
        _deliver(folder, {**delivered, original.name: new})
    return Reset(mine, kept)


def _made_whole(folder: Path, source: Path) -> bool:
    """Make the copy under another name and give it its own at the end; False if somebody was faster.

    A folder that exists is not for this, even an empty one: a shell may be in it. Lessons come there one
    by one.
    """
    unfinished = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}{_UNFINISHED}")
    unfinished.mkdir(parents=True)
    try:
        texts = {original.name: fresh.text_of(original) for original in lessons(source)}
        for name, text in texts.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        shutil.copyfile(FOR_ASSISTANTS, unfinished / FOR_ASSISTANTS.name)
        (unfinished / _OURS).mkdir()
        _deliver(unfinished, {name: _digest(text.encode()) for name, text in texts.items()})
        os.rename(unfinished, folder)
    except OSError:
        if is_copy(folder):
            return False
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return True


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes that were killed have left: nobody needs an hour to make a copy."""
    for unfinished in folder.parent.glob(f".{folder.name}-*{_UNFINISHED}"):
        with suppress(FileNotFoundError):  # another process, at work just now, has given it its name
            if time.time() - unfinished.stat().st_mtime > _HOUR_S:
                shutil.rmtree(unfinished, ignore_errors=True)


def _brought_up_to_date(folder: Path, source: Path) -> Brought:
    made, before = not is_copy(folder), _delivered(folder)
    delivered, added, updated, beside = dict(before), [], [], {}
    for original in lessons(source):
        mine, text = folder / original.name, fresh.text_of(original)
        there, new = _digest_if_there(mine), _digest(text.encode())
        if there is None:
            files.replace(mine, text)
            added.append(mine.name)
        elif there != new and there == before.get(mine.name):
            files.replace(mine, text)
            updated.append(mine.name)
        elif there != new and before.get(mine.name) != new:
            beside[mine.name] = _put_beside(mine, text, before)
            delivered[beside[mine.name].name] = new
        delivered[mine.name] = new
    if made and not (folder / FOR_ASSISTANTS.name).exists():
        _copy(FOR_ASSISTANTS, folder / FOR_ASSISTANTS.name)
    if delivered != before:
        _deliver(folder, delivered)
    return Brought(folder, made, tuple(added), tuple(updated), beside)


def _put_beside(mine: Path, text: str, delivered: dict[str, str]) -> Path:
    """Put a new version of a touched lesson beside it, under the first name that is free of work."""
    for path in _names_beside(mine):
        if _digest_if_there(path) in (None, delivered.get(path.name), _digest(text.encode())):
            files.replace(path, text)
            return path
    raise AssertionError("there is always another name")


def _names_beside(mine: Path) -> Iterator[Path]:
    yield mine.with_name(f"{mine.stem}.new{mine.suffix}")
    number = 2
    while True:
        yield mine.with_name(f"{mine.stem}.new-{number}{mine.suffix}")
        number += 1


def _new_versions(mine: Path) -> list[Path]:
    return sorted(mine.parent.glob(f"{mine.stem}.new*{mine.suffix}"))


def _kept_aside(mine: Path) -> Path:
    """Copy a learner's lesson to a name that nothing else has; the lesson itself is there all the while."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    aside = mine.with_name(f"{mine.stem}.yours-{stamp}{mine.suffix}")
    while aside.exists():
        aside = aside.with_name(f"{aside.stem}-again{aside.suffix}")
    _copy(mine, aside)
    return aside


def _copy(source: Path, target: Path) -> None:
    files.replace(target, source.read_text(encoding="utf-8"))


def _digest(content: bytes) -> str:
    """Digest what a learner can have changed: the cells, and what they show once they were run.

    JupyterLab writes a file otherwise than we do, and adds the kernel's version, when somebody only looks.
    """
    with suppress(ValueError, TypeError, KeyError):  # no notebook, or one no longer: then it says its bytes
        content = json.dumps(_without_bookkeeping(json.loads(content)["cells"]), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def _digest_if_there(notebook: Path) -> str | None:
    return _digest(notebook.read_bytes()) if notebook.exists() else None


def _without_bookkeeping(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_bookkeeping(value[key]) for key in value.keys() - _NOT_THE_LEARNERS}
    if not isinstance(value, list):
        return value
    kept = [each for each in value if not fresh.is_to_come(each)]
    if all(isinstance(each, str) for each in kept):
        return "".join(kept)  # a text may be stored as a list of its lines
    return [_without_bookkeeping(each) for each in kept]


def _locked(folder: Path) -> Any:
    (folder / _OURS).mkdir(exist_ok=True)
    return files.acquired(folder / _OURS / "lock", timeout_s=_LOCK_TIMEOUT_S)


def _list_of(folder: Path) -> Path:
    return folder / _OURS / "delivered.json"


def _delivered(folder: Path) -> dict[str, str]:
    """Read the digests of the lessons as they came; none of a damaged list: then nothing is overwritten."""
    try:
        delivered = json.loads(_list_of(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return delivered if isinstance(delivered, dict) else {}


def _deliver(folder: Path, delivered: dict[str, str]) -> None:
    files.replace(_list_of(folder), json.dumps(delivered, indent=1) + "\n")
