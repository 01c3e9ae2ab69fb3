"""What this learner has done: one JSON file, on this machine only.

The file is ``progress.json`` in the folder of ``home``. It is replaced as a whole, so a process that is
killed at any moment leaves either the old file or the new one; a lock keeps two kernels from overwriting each
other's results; a damaged file is set aside under another name, never overwritten, and whoever finds it says
so. Where nothing can be written, what is there is still shown. Every failure is a ``ProgressError``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import platformdirs

from amp_lessons._base import files
from amp_lessons._base.typed_json import made

SCHEMA = 1
_LOCK_TIMEOUT_S = 10.0


class ProgressError(Exception):
    """Progress could not be read or written; the message says why, and what was left untouched."""


class _NotWritableError(ProgressError):
    """Nothing can be written where progress is kept; what is there can perhaps still be read."""


class _DamagedError(Exception):
    """The file holds something else than progress."""


@dataclass(frozen=True)
class Record:
    """One exercise: tries and hints until it was solved, and when (UTC, ISO 8601)."""

    tries: int = 0
    hints: int = 0
    solution_seen: bool = False
    first_try_at: str | None = None
    solved_at: str | None = None

    @property
    def solved(self) -> bool:
        """Whether a check of this exercise has passed."""
        return self.solved_at is not None


@dataclass(frozen=True)
class Progress:
    """All records by exercise id. ``message`` names a damaged file, if there was one: nobody may miss it."""

    records: dict[str, Record]
    message: str = ""

    def of(self, exercise_id: str) -> Record:
        """Return the record of an exercise, an empty one if nothing has been done."""
        return self.records.get(exercise_id, Record())

    def as_json(self) -> str:
        """Write all records as JSON."""
        return json.dumps({name: asdict(record) for name, record in self.records.items()}, indent=2) + "\n"

    def as_csv(self) -> str:
        """Write all records as CSV, one row per exercise."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [field.name for field in fields(Record)]
        writer.writerow(["exercise", *names])
        for exercise_id, record in self.records.items():
            writer.writerow([exercise_id, *(getattr(record, name) for name in names)])
        return text.getvalue()


def home() -> Path:
    """Return the progress file's folder: ``AMP_LESSONS_HOME`` if set, else the user's data folder.

    Raises ProgressError if it is a file, or relative: a kernel runs in the folder of its notebook, so that
    each of these folders would get a progress file of its own.
    """
    chosen = os.environ.get("AMP_LESSONS_HOME")
    folder = _expanded(chosen) if chosen else platformdirs.user_data_path("amp-lessons", appauthor=False)
    if not folder.is_absolute():
        raise ProgressError(
            f"progress would be kept in {str(folder)!r}, another folder for every folder that Python runs "
            "in; set AMP_LESSONS_HOME to an absolute path, such as ~/amp-lessons"
        )
    if os.path.isfile(folder):
        raise ProgressError(f"progress cannot be saved: {folder} is a file, and has to be a folder")
    return folder


def _expanded(chosen: str) -> Path:
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:
        raise ProgressError(f"AMP_LESSONS_HOME is {chosen!r}, and that is nobody's home: {error}") from error


def path() -> Path:
    """Return the path of the progress file. Raises as ``home`` does."""
    return home() / "progress.json"


def damaged_files() -> list[Path]:
    """Return the damaged files set aside, today or earlier, oldest first. Raises as ``home`` does."""
    return files.were_set_aside(path())


def read() -> Progress:
    """Return all records. A damaged file is set aside where that is possible, and named in ``message``.

    A folder that cannot be written to is read without a lock: files are replaced as a whole. Raises
    ProgressError if the file cannot be read, or was written by a newer version of the course.
    """
    if not _kept():
        return Progress({})
    try:
        with _locked():
            content, message = _load()
    except _NotWritableError:
        content, message = _load_only()
    return Progress(_records(content), message)


def _kept() -> bool:
    """Whether there is a progress file; finding out writes nothing."""
    try:
        path().stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ProgressError(f"progress cannot be read: {error}") from error
    return True


def record_try(exercise_id: str, passed: bool) -> str:
    """Count one try of an exercise; return what the learner should know, usually nothing.

    What happens after an exercise is solved changes nothing. Raises ProgressError if the file cannot be
    written.
    """
    return _change(exercise_id, lambda record: _tried(record, passed))


def record_hint(exercise_id: str, number: int) -> str:
    """Note that hint ``number`` was seen; return and raise as ``record_try``."""
    return _change(exercise_id, lambda record: replace(record, hints=max(record.hints, number)))


def record_solution(exercise_id: str) -> str:
    """Note that the solution was seen; return and raise as ``record_try``."""
    return _change(exercise_id, lambda record: replace(record, solution_seen=True))


def section(name: str) -> tuple[Any, str]:
    """Return what another room keeps in the file under ``name``, None if nothing, and ``read``'s message.

    It is as it was written: whether it makes sense is for that room to say. Raises as ``read`` does.
    """
    if not _kept():
        return None, ""
    try:
        with _locked():
            content, message = _load()
    except _NotWritableError:
        content, message = _load_only()
    return content.get(name), message


def change_section(name: str, change: Callable[[Any], Any]) -> str:
    """Replace what is kept under ``name`` by ``change`` of it, of None at first; return as ``record_try``.

    It raises as ``record_try`` does. What ``change`` raises is raised, and nothing is written.
    """
    with _locked():
        content, message = _load()
        content[name] = change(content.get(name))
        _store(content)
        return message


def reset(exercise_id: str | None = None) -> str:
    """Forget one exercise, or all and what was practised; return and raise as ``record_try``.

    Asking first is for the caller.
    """
    if not _kept():
        return ""
    with _locked():
        content, message = _load()
        if exercise_id is None:
            content = _empty()
        else:
            content["exercises"].pop(exercise_id, None)
        _store(content)
        return message


def _tried(record: Record, passed: bool) -> Record:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return replace(
        record,
        tries=record.tries + 1,
        first_try_at=record.first_try_at or now,
        solved_at=now if passed else None,
    )


def _change(exercise_id: str, change: Callable[[Record], Record]) -> str:
    with _locked():
        content, message = _load()
        record = _records(content).get(exercise_id, Record())
        if not record.solved:
            content["exercises"][exercise_id] = asdict(change(record))
            _store(content)
        return message


def _records(content: dict[str, Any]) -> dict[str, Record]:
    return {exercise_id: made(Record, entry) for exercise_id, entry in content["exercises"].items()}


def _load() -> tuple[dict[str, Any], str]:
    """Read the file under the lock: its content, and a message if it had to be set aside."""
    try:
        return _content(), ""
    except _DamagedError:
        return _empty(), _set_aside()


def _load_only() -> tuple[dict[str, Any], str]:
    """Do as ``_load``, and leave a damaged file where it is."""
    try:
        return _content(), ""
    except _DamagedError:
        return _empty(), f"{path()} is damaged, and cannot be set aside there; it is left as it is"


def _empty() -> dict[str, Any]:
    return {"schema": SCHEMA, "exercises": {}}


def _content() -> dict[str, Any]:
    """Read the file, which need not be there."""
    try:
        return _understood(path().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _empty()
    except UnicodeDecodeError as error:
        raise _DamagedError from error
    except OSError as error:
        raise ProgressError(f"progress cannot be read: {error}") from error


def _understood(text: str) -> dict[str, Any]:
    """Return what the file holds, every record checked; a newer version's file is not damaged."""
    try:
        content = json.loads(text)
        newer = content["schema"] > SCHEMA
        _ = {} if newer else _records(content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _DamagedError from error
    if newer:
        raise ProgressError(
            f"{path()} was written by a newer version of amp-lessons (schema {content['schema']}, this one "
            f"knows {SCHEMA}); it is left as it is"
        )
    return content


def _set_aside() -> str:
    try:
        aside = files.set_aside(path())
    except OSError as error:
        raise _NotWritableError(
            f"progress cannot be saved: {path()} is damaged, and cannot be set aside: {error}"
        ) from error
    return f"the progress file could not be read; it was kept as {aside}, and a new one was begun"


def _store(content: dict[str, Any]) -> None:
    try:
        files.replace(path(), json.dumps(content, indent=2) + "\n")
    except (OSError, RecursionError) as error:  # writing nests less deeply than reading
        raise ProgressError(f"progress cannot be saved: {error}") from error


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Keep the file to this process."""
    file = home() / "progress.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = files.acquired(file, _LOCK_TIMEOUT_S)
    except files.InUseError as error:
        raise ProgressError(f"another process holds {file}; this result was not saved") from error
    except OSError as error:
        raise _NotWritableError(f"progress cannot be saved: {error}") from error
    with lock:
        yield


T = TypeVar("T")


class DamagedError(Exception):
    """A section holds something else than it should."""


@dataclass(frozen=True)
class Section:
    """One section by its name; ``what`` it holds is said in the learner's words.

    Where it is damaged the file is copied, and this section alone is begun anew.
    """

    name: str
    what: str

    def read(self, checked: Callable[[Any], T]) -> tuple[T, str]:
        """Return what ``checked`` makes of the section, and what the learner should know, usually nothing.

        ``checked`` takes None for a section that is not there, and raises DamagedError. Raises ProgressError
        as ``read`` does.
        """
        kept, message = section(self.name)
        try:
            return checked(kept), message
        except DamagedError:
            return checked(None), self._begin_anew()

    def change(self, change: Callable[[Any], Any]) -> str:
        """Replace the section by what ``change`` makes of it; return what the learner should know.

        ``change`` raises DamagedError. Raises ProgressError if the file cannot be written.
        """
        try:
            return change_section(self.name, change)
        except DamagedError:
            said = self._begin_anew()
            change_section(self.name, change)
            return said

    def _begin_anew(self) -> str:
        source = path()
        try:
            copy = files.copy_aside(source)
        except OSError as error:
            raise ProgressError(
                f"{self.what} cannot be read: that part of {source} is damaged, and the file cannot be "
                f"copied: {error}"
            ) from error
        change_section(self.name, lambda _: {})
        return f"{self.what} could not be read; the file was kept as {copy}, and that part was begun anew"
