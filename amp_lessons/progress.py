"""What this learner has done: one JSON file, on this machine only.

The file is ``progress.json`` in the folder of `home`. It is replaced as a whole, so a process that is killed
at any moment leaves either the old file or the new one; a lock keeps two kernels from overwriting each
other's results; a file that cannot be read is set aside under another name, never overwritten.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import platformdirs

from amp_lessons import locks

SCHEMA = 1
_LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_S = 0.02


class ProgressError(Exception):
    """Progress could not be read or written; the message says why, and what was left untouched."""


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
    """All records by exercise id. ``message`` names a damaged file that was set aside, if there was one."""

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
    """Return the progress file's folder: ``AMP_LESSONS_HOME`` if set, else the user's data folder."""
    chosen = os.environ.get("AMP_LESSONS_HOME")
    return Path(chosen) if chosen else platformdirs.user_data_path("amp-lessons", appauthor=False)


def path() -> Path:
    """Return the path of the progress file."""
    return home() / "progress.json"


def read() -> Progress:
    """Return all records. A damaged file is set aside, and named in ``message``.

    Raises ProgressError if the file cannot be read, or was written by a newer version of the course.
    """
    if not path().exists():
        return Progress({})
    with _locked():
        content, message = _load()
    return Progress(_records(content), message)


def record_try(exercise_id: str, passed: bool) -> str:
    """Count one try of an exercise; return what the learner should know, usually nothing.

    What happens after an exercise is solved changes nothing. Raises ProgressError if the file cannot be
    written.
    """
    return _change(exercise_id, lambda record: _tried(record, passed))


def record_hint(exercise_id: str, number: int) -> str:
    """Note that hint ``number`` was seen; return and raise as `record_try`."""
    return _change(exercise_id, lambda record: replace(record, hints=max(record.hints, number)))


def record_solution(exercise_id: str) -> str:
    """Note that the solution was seen; return and raise as `record_try`."""
    return _change(exercise_id, lambda record: replace(record, solution_seen=True))


def reset(exercise_id: str | None = None) -> None:
    """Forget one exercise, or all of them. Asking first is for the caller. Raises ProgressError."""
    if not path().exists():
        return
    with _locked():
        content, _ = _load()
        if exercise_id is None:
            content["exercises"] = {}
        else:
            content["exercises"].pop(exercise_id, None)
        _store(content)


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
    known = {field.name for field in fields(Record)}
    return {
        exercise_id: Record(**{name: value for name, value in entry.items() if name in known})
        for exercise_id, entry in content["exercises"].items()
    }


def _load() -> tuple[dict[str, Any], str]:
    """Read the file under the lock: its content, and a message if it had to be set aside."""
    empty: dict[str, Any] = {"schema": SCHEMA, "exercises": {}}
    try:
        text = path().read_text(encoding="utf-8")
    except FileNotFoundError:
        return empty, ""
    except UnicodeDecodeError:
        return empty, _set_aside()
    except OSError as error:
        raise ProgressError(f"progress cannot be read: {error}") from error
    try:
        content = json.loads(text)
        newer = content["schema"] > SCHEMA
        _ = {key: Record(**entry).solved for key, entry in content["exercises"].items()} if not newer else {}
    except (ValueError, TypeError, KeyError, AttributeError):
        return empty, _set_aside()
    if newer:
        raise ProgressError(
            f"{path()} was written by a newer version of amp-lessons (schema {content['schema']}, this one "
            f"knows {SCHEMA}); it is left as it is"
        )
    return content, ""


def _set_aside() -> str:
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    aside = path().with_name(f"progress.damaged-{stamp}.json")
    os.replace(path(), aside)
    return f"the progress file could not be read; it was kept as {aside}, and a new one was begun"


def _store(content: dict[str, Any]) -> None:
    """Replace the file as a whole. The name of the temporary file is fixed: the lock admits one writer."""
    temporary = path().with_suffix(".json.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path())
    except OSError as error:
        raise ProgressError(f"progress cannot be saved: {error}") from error


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock file's lock, which the system lets go when the process ends, however it ends."""
    try:
        home().mkdir(parents=True, exist_ok=True)
        file = (home() / "progress.lock").open("a+b")
    except OSError as error:
        raise ProgressError(f"progress cannot be saved: {error}") from error
    with file:
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not locks.try_lock(file):
            if time.monotonic() > deadline:
                raise ProgressError(f"another process holds {file.name}; this result was not saved")
            time.sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            locks.unlock(file)
