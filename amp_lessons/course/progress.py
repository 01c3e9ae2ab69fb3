"""The learner's record: all that is kept about one person, in one JSON file, on this machine only.

The file is ``progress.json`` in the folder of ``home``. It is replaced as a whole, so a process that is
killed at any moment leaves either the old file or the new one; a lock keeps two kernels from overwriting each
other's results. A damaged file is set aside under another name, and of one that is damaged in a part a copy
is, before that part is begun anew: whoever finds it says so (``Learner.message``). Where nothing can be
written, what is there is still shown. What other versions have written stays. Every failure is a
``ProgressError``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import platformdirs

from amp_lessons._base import files
from amp_lessons._base.typed_json import made

SCHEMA = 1
GRADES = ("again", "hard", "good", "easy")  # as the scheduler numbers them, from 1
_LOCK_TIMEOUT_S = 10.0
_MOST_CHARACTERS = 50_000  # of one piece of code: the file is written anew at every check
_MOST_VERSIONS = 5
_MOST_ROUNDS = 30
# the parts of the file beside "exercises", in the learner's words
_PARTS = {
    "practice": "what you practised",
    "answers": "your answers to questions",
    "cores": "which lessons you have done",
    "route": "which way through the course you chose",
    "plan": "the plan for your interview",
    "rounds": "your code rounds",
    "written": "the code that you wrote",
}


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

    @property
    def tried(self) -> bool:
        """Whether it was checked, or its solution seen."""
        return bool(self.tries or self.solution_seen)


@dataclass(frozen=True)
class Review:
    """One time that something was practised: when (UTC, ISO 8601), and how well, one of ``GRADES``.

    ``in_mock`` is written where it was asked in a mock interview, which takes no place among a day's new
    cards. When something is due again follows from its reviews (``schedule``) and is not kept.
    """

    at: str
    grade: str
    in_mock: bool = False

    @property
    def moment(self) -> datetime:
        """When that was."""
        return datetime.fromisoformat(self.at)


@dataclass(frozen=True)
class FirstAnswer:
    """The first answer to a question: whether it was right, and when it was given (UTC, ISO 8601).

    It says what somebody knew: whoever tries the others afterwards loses nothing. ``chosen`` is the text of
    the choice; "" where a version of the course kept it that did not note it. ``found_at`` is when the right
    one was chosen after a first that was not; "" while that has not been.
    """

    right: bool
    at: str
    chosen: str = ""
    found_at: str = ""

    @property
    def found(self) -> bool:
        """Whether the right one was chosen, at first or later."""
        return self.right or bool(self.found_at)


@dataclass(frozen=True)
class Plan:
    """A plan: the ``until`` and ``began`` days (ISO 8601), minutes a day, and what was marked, on which day.

    ``until`` is "" where nothing was planned. What to do on which day is made anew each day of what is left,
    so that a missed day changes it.
    """

    until: str = ""
    minutes: int = 0
    began: str = ""
    done: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Try:
    """One time that code was handed in: after how many seconds, whether it passed, what the check said."""

    seconds: float
    passed: bool
    said: str


@dataclass(frozen=True)
class Round:
    """A code round: when it was begun (UTC, ISO 8601), how many seconds were used, what was done in them.

    ``source`` is what was handed in last, ``pointed`` what was said of a review; ``ended_at`` is "" until it
    is over.
    """

    minutes: int
    began_at: str
    seconds: float = 0.0
    hints: int = 0
    tries: tuple[Try, ...] = ()
    pointed: str = ""
    source: str = ""
    ended_at: str = ""


@dataclass(frozen=True)
class Version:
    """Code that passed its check, and when that was (UTC, ISO 8601)."""

    at: str
    source: str


@dataclass(frozen=True)
class Written:
    """The code that solved an exercise, the newest last; ``emptied_at`` is when its empty cell was checked.

    Whoever repeats an exercise empties its cell: what stood there is kept here, and here it is seen whether
    what is handed in on that day was written on that day.
    """

    versions: tuple[Version, ...] = ()
    emptied_at: str = ""

    @property
    def newest(self) -> Version | None:
        """The newest version, if any was kept."""
        return self.versions[-1] if self.versions else None

    def __str__(self) -> str:
        said = [f"# passed its check on {each.at[:10]}\n{each.source}" for each in self.versions]
        return "\n\n".join(said) or "no code is kept of this exercise"

    __repr__ = __str__


@dataclass(frozen=True)
class _Route:
    id: str = ""


class Learner:
    """What is kept about a learner, as it was when it was read; ``message`` names a damaged file, if any.

    ``records``, ``reviews``, ``written`` are by the id of an exercise or question, ``answers`` by that of a
    question, ``cores`` (when the core of a lesson was done, UTC, ISO 8601) by the lesson's number, ``rounds``
    by task and seed, the newest last. ``route`` is the id of the one that was chosen last, else empty.
    The methods that change it are for ``change``, which writes it.
    """

    def __init__(self, content: dict[str, Any] | None = None, message: str = "") -> None:
        """Raise ``_DamagedError`` where the exercises are none; a part that makes no sense is ``damaged``."""
        self.content: dict[str, Any] = {"schema": SCHEMA, "exercises": {}} if content is None else content
        self.message, self.changed, self.damaged = message, False, list[str]()
        try:
            self.records = made(dict[str, Record], self.content["exercises"])
        except (TypeError, KeyError) as error:
            raise _DamagedError from error
        self.reviews = self._part("practice", _reviews, {})
        self.answers = self._part("answers", lambda kept: made(dict[str, FirstAnswer], kept), {})
        self.cores = self._part("cores", lambda kept: made(dict[str, str], kept), {})
        self.route = self._part("route", lambda kept: made(_Route, kept, unknown_too=True), _Route()).id
        self.plan = self._part("plan", _plan, Plan())
        self.rounds = self._part("rounds", lambda kept: made(dict[str, Round], kept), {})
        self.written = self._part("written", lambda kept: made(dict[str, Written], kept), {})

    def _part(self, name: str, read: Callable[[Any], Any], empty: Any) -> Any:
        """Return a part of the file, checked; an empty one where it is not there, or is damaged."""
        if self.content.get(name) is None:
            return empty
        try:
            return read(self.content[name])
        except (TypeError, ValueError, AttributeError):
            self.damaged.append(name)
            del self.content[name]
            return empty

    def of(self, exercise_id: str) -> Record:
        """Return the record of an exercise, an empty one if nothing has been done."""
        return self.records.get(exercise_id, Record())

    def last_at(self, id: str) -> datetime | None:
        """Return when a question or an exercise was worked on last, as far as that is kept."""
        record, written = self.of(id), self.written.get(id, Written())
        traces = [record.first_try_at, record.solved_at, written.emptied_at]
        traces += [each.at for each in (*written.versions, *self.reviews.get(id, ()))]
        traces += [self.answers[id].at, self.answers[id].found_at] if id in self.answers else []
        return max(filter(None, map(moment, traces)), default=None)

    def as_json(self) -> str:
        """Write the records of all exercises as JSON."""
        return json.dumps({name: asdict(record) for name, record in self.records.items()}, indent=2) + "\n"

    def as_csv(self) -> str:
        """Write the records of all exercises as CSV, one row each."""
        text = io.StringIO()
        names = [each.name for each in fields(Record)]
        rows = ([id, *(getattr(record, name) for name in names)] for id, record in self.records.items())
        csv.writer(text, lineterminator="\n").writerows([["exercise", *names], *rows])
        return text.getvalue()

    def _keep(self, part: str, entry: Any) -> None:
        self.content[part], self.changed = entry, True

    def _keep_in(self, part: str, id: str, entry: Any) -> None:
        self._keep(part, {**(self.content.get(part) or {}), id: entry})

    def record_try(self, exercise_id: str, passed: bool) -> None:
        """Count one try of an exercise; what happens after it is solved changes nothing."""
        now, record = _now(), self.of(exercise_id)
        first = record.first_try_at or now
        self._record(
            exercise_id, tries=record.tries + 1, first_try_at=first, solved_at=now if passed else None
        )

    def record_hint(self, exercise_id: str, number: int) -> None:
        """Note that hint ``number`` of an exercise was seen."""
        self._record(exercise_id, hints=max(self.of(exercise_id).hints, number))

    def record_solution(self, exercise_id: str) -> None:
        """Note that the solution of an exercise was seen."""
        self._record(exercise_id, solution_seen=True)

    def _record(self, exercise_id: str, **changes: Any) -> None:
        if not self.of(exercise_id).solved:
            self.records[exercise_id] = replace(self.of(exercise_id), **changes)
            self._keep_in("exercises", exercise_id, asdict(self.records[exercise_id]))

    def forget(self, exercise_id: str | None = None) -> None:
        """Forget the record of one exercise, or all that is kept. Asking first is for the caller."""
        if exercise_id is None:
            self.__init__(message=self.message)  # type: ignore[misc]
            self.changed = True
        elif self.records.pop(exercise_id, None):
            self._keep(
                "exercises", {id: each for id, each in self.content["exercises"].items() if id != exercise_id}
            )

    def review(self, id: str, grade: str, at: datetime | None = None, *, in_mock: bool = False) -> None:
        """Note that a question or exercise was practised. Raises ValueError for a grade that is none."""
        if grade not in GRADES:
            raise ValueError(f"a grade is one of {', '.join(GRADES)}, not {grade!r}")
        review = Review((at or utc_now()).isoformat(timespec="seconds"), grade, in_mock)
        self.reviews[id] = (*self.reviews.get(id, ()), review)
        entry = asdict(review)
        if not in_mock:  # what every version reads
            del entry["in_mock"]
        self._keep_in("practice", id, [*(self.content.get("practice") or {}).get(id, ()), entry])

    def take_back(self, id: str) -> None:
        """Forget the last time that ``id`` was practised, if there was one."""
        if not self.reviews.get(id):
            return
        self.reviews[id] = self.reviews[id][:-1]
        self._keep_in("practice", id, self.content["practice"][id][:-1])
        if not self.reviews[id]:
            del self.reviews[id], self.content["practice"][id]

    def answer(self, question_id: str, right: bool, chosen: str = "") -> None:
        """Note the answer to a question, ``chosen``, if it is the first, or the first that is right."""
        first = self.answers.get(question_id)
        if first is None:
            answer = FirstAnswer(right, _now(), chosen)
        elif right and not first.found:
            answer = replace(first, found_at=_now())
        else:
            return
        self.answers[question_id] = answer
        entry = asdict(answer)
        if not answer.found_at:  # what every version reads
            del entry["found_at"]
        self._keep_in("answers", question_id, entry)

    def end_core(self, number: str) -> None:
        """Note that the core of a lesson was done, if it was not before."""
        if number not in self.cores:
            self.cores[number] = _now()
            self._keep_in("cores", number, self.cores[number])

    def choose(self, route: str) -> None:
        """Note the choice of a route by its id."""
        self.route = route
        self._keep("route", {"id": route})

    def plan_for(self, until: date, minutes: int, today: date) -> None:
        """Plan for a day; what was marked stays."""
        began = self.plan.began or today.isoformat()
        self._keep_plan(until=until.isoformat(), minutes=minutes, began=began)

    def mark(self, names: Iterable[str], today: date) -> None:
        """Note that these parts of the plan were done today."""
        self._keep_plan(done={**self.plan.done, **dict.fromkeys(names, today.isoformat())})

    def unmark(self, names: Iterable[str]) -> None:
        """Note that these parts of the plan were not done after all."""
        gone = set(names)
        self._keep_plan(done={name: day for name, day in self.plan.done.items() if name not in gone})

    def _keep_plan(self, **changes: Any) -> None:
        self.plan = replace(self.plan, **changes)
        self._keep("plan", asdict(self.plan))

    def keep_round(self, key: str, kept: Round) -> None:
        """Keep a code round as it stands, and let go of the oldest."""
        others = [(name, each) for name, each in self.rounds.items() if name != key][-(_MOST_ROUNDS - 1) :]
        self.rounds = {**dict(others), key: replace(kept, source=kept.source[:_MOST_CHARACTERS])}
        self._keep("rounds", {name: asdict(each) for name, each in self.rounds.items()})

    def keep_version(self, exercise_id: str, source: str) -> None:
        """Keep code that has passed its check, unless it is the newest already; the last few are kept."""
        kept = self.written.get(exercise_id, Written())
        if len(source) <= _MOST_CHARACTERS and not (kept.newest and kept.newest.source == source):
            versions = (*kept.versions, Version(_now(), source))[-_MOST_VERSIONS:]
            self._keep_written(exercise_id, replace(kept, versions=versions))

    def keep_emptied(self, exercise_id: str) -> None:
        """Note that the empty cell of an exercise was checked now: what follows is written anew."""
        kept = self.written.get(exercise_id, Written())
        self._keep_written(exercise_id, replace(kept, emptied_at=_now()))

    def _keep_written(self, exercise_id: str, kept: Written) -> None:
        self.written[exercise_id] = kept
        self._keep_in("written", exercise_id, asdict(kept))


def utc_now() -> datetime:
    """Return this moment, to the second."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def moment(text: str | None) -> datetime | None:
    """Return a moment as the record keeps it, None where there is none, or somebody has edited it."""
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc) if text else None
    except ValueError:
        return None


def _now() -> str:
    return utc_now().isoformat(timespec="seconds")


def _reviews(kept: Any) -> dict[str, tuple[Review, ...]]:
    reviews = made(dict[str, tuple[Review, ...]], kept, unknown_too=True)
    for each in (each for of_one in reviews.values() for each in of_one):
        if each.grade not in GRADES or each.moment.utcoffset() is None:
            raise ValueError(f"no review: {each!r:.60}")
    return reviews


def _plan(kept: Any) -> Plan:
    plan = made(Plan, kept)
    for day in filter(None, (plan.until, plan.began, *plan.done.values())):
        date.fromisoformat(day)
    return plan


def home() -> Path:
    """Return the progress file's folder: ``AMP_LESSONS_HOME`` if set, else the user's data folder.

    Raises ProgressError if it is a file, or relative: a kernel runs in the folder of its notebook, so that
    each of these folders would get a progress file of its own.
    """
    chosen = os.environ.get("AMP_LESSONS_HOME")
    try:
        folder = (
            Path(chosen).expanduser()
            if chosen
            else platformdirs.user_data_path("amp-lessons", appauthor=False)
        )
    except RuntimeError as error:
        raise ProgressError(f"AMP_LESSONS_HOME is {chosen!r}, and that is nobody's home: {error}") from error
    if not folder.is_absolute():
        raise ProgressError(
            f"progress would be kept in {str(folder)!r}, another folder for every folder that Python runs "
            "in; set AMP_LESSONS_HOME to an absolute path, such as ~/amp-lessons"
        )
    if os.path.isfile(folder):
        raise ProgressError(f"progress cannot be saved: {folder} is a file, and has to be a folder")
    return folder


def path() -> Path:
    """Return the path of the progress file. Raises as ``home`` does."""
    return home() / "progress.json"


def damaged_files() -> list[Path]:
    """Return the damaged files set aside, today or earlier, oldest first. Raises as ``home`` does."""
    return files.were_set_aside(path())


def read() -> Learner:
    """Return all that is kept; finding out that nothing is writes nothing.

    A damaged file is set aside where that is possible, and named in ``message``. A folder that cannot be
    written to is read without a lock: files are replaced as a whole. Raises ProgressError if the file cannot
    be read, or was written by a newer version of the course.
    """
    try:
        path().stat()
    except FileNotFoundError:
        return Learner()
    except OSError as error:
        raise ProgressError(f"progress cannot be read: {error}") from error
    return _apply(lambda kept: None)


def change(act: Callable[[Learner], object]) -> str:
    """Let ``act`` change what is kept, and write it; return what the learner should know, usually nothing.

    The file is read once, and written once, if ``act`` has changed anything. Raises ProgressError if it
    cannot be read, or what was changed cannot be written. What ``act`` raises is raised, and nothing written.
    """
    return _apply(act).message


def try_reading() -> Learner:
    """Return what is kept; where that cannot be read nothing, with the reason as its ``message``."""
    try:
        return read()
    except ProgressError as error:
        return Learner(message=str(error))


def try_changing(act: Callable[[Learner], object]) -> str:
    """Change what is kept as ``change`` does; where that cannot be, return why, so that work goes on."""
    try:
        return change(act)
    except ProgressError as error:
        return str(error)


def _apply(act: Callable[[Learner], object]) -> Learner:
    """Return what is kept after ``act``; raise as ``change`` does."""
    try:
        with _locked():
            kept = _load(writable=True)
            act(kept)
            if kept.changed or kept.damaged:
                _store(kept.content)
    except _NotWritableError:
        kept = _load(writable=False)
        act(kept)
        if kept.changed:
            raise
    return kept


def _load(*, writable: bool) -> Learner:
    """Read the file; of a damaged one, do with it what can be done, and say what that was."""
    left = "and cannot be set aside there; it is left as it is"
    try:
        kept = Learner(_content())
    except _DamagedError:
        damaged = f"{path()} is damaged"
        if not writable:
            return Learner(message=f"{damaged}, {left}")
        aside = _aside(files.set_aside, f"progress cannot be saved: {damaged}, and cannot be set aside")
        said = f"the progress file could not be read; it was kept as {aside}, and a new one was begun"
        return Learner(message=said)
    if kept.damaged:
        what = " and ".join(_PARTS[name] for name in kept.damaged)
        damaged = f"{what} cannot be read: that part of {path()} is damaged"
        kept.message = f"{damaged}, {left}"
        if writable:
            copy = _aside(files.copy_aside, f"{damaged}, and the file cannot be copied")
            kept.message = (
                f"{what} could not be read; the file was kept as {copy}, and that part was begun anew"
            )
    return kept


def _aside(put: Callable[[Path], Path], cannot: str) -> Path:
    """Put the file, or a copy of it, aside; raise ``_NotWritableError`` with what ``cannot`` be done."""
    try:
        return put(path())
    except OSError as error:
        raise _NotWritableError(f"{cannot}: {error}") from error


def _content() -> dict[str, Any] | None:
    """Read the file, None where there is none; a newer version's file is not damaged."""
    try:
        content = json.loads(path().read_text(encoding="utf-8"))
        newer = content["schema"] > SCHEMA
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ProgressError(f"progress cannot be read: {error}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _DamagedError from error
    if newer:
        raise ProgressError(
            f"{path()} was written by a newer version of amp-lessons (schema {content['schema']}, this one "
            f"knows {SCHEMA}); it is left as it is"
        )
    return dict(content)


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
