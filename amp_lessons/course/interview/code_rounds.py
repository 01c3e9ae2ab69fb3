"""A code round: one task under a clock that shows and never ends it, tries, hints, and a report.

What was handed in is kept at once. A round of the same task and seed goes on where it was left.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup

from amp_lessons._base.render import Section
from amp_lessons._base.text import prose
from amp_lessons._base.text.words import counted
from amp_lessons.audit.findings import todo
from amp_lessons.course import exercises, progress
from amp_lessons.course.exercises import Report
from amp_lessons.course.exercises.own_code import same_code, source_of
from amp_lessons.course.interview.code_tasks import CodeTask, Review, task
from amp_lessons.course.interview.reporting import ToldInSections
from amp_lessons.course.progress import Round, Try, utc_now


@dataclass
class CodeRound:
    """One round. ``task`` is what is asked for; hand in by ``hand_in``, and point at bugs by ``point``.

    ``task_id`` asks for one task instead of the one that the seed draws. Raises ValueError as ``task`` does.
    """

    minutes: int = 30
    seed: int = 0
    task_id: str = ""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        """Draw the task, start the clock, and go on where this round was left, if it was."""
        self.task: CodeTask = task(self.minutes, self.seed, self.task_id)
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # it names the round's file
        found = progress.try_reading()
        self.message, left = found.message, found.rounds.get(self.key)
        self.resumed = left is not None and not left.ended_at
        self.kept = left if left is not None and self.resumed else Round(self.minutes, now)
        self._began = self.clock() - self.kept.seconds

    @property
    def key(self) -> str:
        """What the round is kept by."""
        return f"{self.task.id} {self.seed} {self.minutes}"

    @property
    def used_s(self) -> float:
        """How many seconds were used, also before it was left and begun again."""
        return self.clock() - self._began

    @property
    def left_s(self) -> float:
        """How many seconds are left; below 0 once the time is over, which ends nothing."""
        return 60 * self.minutes - self.used_s

    @property
    def page(self) -> str:
        """What was handed in last, else what there is to begin with."""
        return self.kept.source or self.task.page

    @property
    def passed(self) -> bool:
        """Whether the check has passed."""
        return any(each.passed for each in self.kept.tries)

    def hint(self) -> str:
        """Return the next hint, the last one again once there are no more."""
        number = min(self.kept.hints + 1, len(self.task.hints))
        self._keep(replace(self.kept, hints=number))
        if self.task.review is None:  # an exercise's own hints count for the exercise, too
            self.message = exercises.hint(self.task.exercise.id, number).message or self.message
        return f"Hint {number} of {len(self.task.hints)}: {self.task.hints[number - 1]}"

    def point(self, answer: str) -> str:
        """Point at bugs of a review, as ``12 c, 15 f``; return what there is at each of these places.

        Everything that was pointed at before still counts. Raises ValueError for what cannot be read, and
        where there is nothing to review.
        """
        review = self.task.review
        if review is None:
            raise ValueError("only in a review bugs are pointed at; here the code is handed in")
        new = review.read(answer)
        said = (*review.read(self.kept.pointed), *new)
        letters = {cause: letter for letter, cause in review.causes.items()}
        typed = dict.fromkeys(f"{each.line} {letters[each.cause]}" for each in said)
        self._keep(replace(self.kept, pointed=", ".join(typed)))
        judged = " ".join(f"Line {each.line}: {review.judged(each)}." for each in new)
        return f"{judged} {counted(len(review.found(said)), 'bug')} found so far."

    def take_back(self) -> str:
        """Forget the place of a review that was pointed at last; say what that was."""
        typed = [each for each in self.kept.pointed.split(", ") if each]
        if not typed:
            return "There is nothing to take back: no bug was pointed at. Code is simply handed in again."
        self._keep(replace(self.kept, pointed=", ".join(typed[:-1])))
        return f"Taken back: {typed[-1]}."

    @property
    def standing(self) -> str:
        """What is found and passed so far, and what the round still waits for; how many bugs, it keeps."""
        checked = "The check has passed." if self.passed else "The check has not passed yet."
        if self.task.review is None:
            return checked
        told = "; ".join(_found(self.task.review, self.kept)) or "none"
        left = "" if self.all_found else " There are bugs that you have not named yet."
        return f"Bugs found so far: {told}. {checked}{left}"

    @property
    def all_found(self) -> bool:
        """Whether no bug is left to be pointed at; where there is nothing to review, none is."""
        review = self.task.review
        return review is None or len(review.found(review.read(self.kept.pointed))) == len(review.bugs)

    def hand_in(self, *attempt: Any) -> Report:
        """Check what was written, one object or several in the order of the page; what it says is kept."""
        return self._checked(attempt[0] if len(attempt) == 1 else attempt, "")

    def hand_in_source(self, source: str, file: str) -> Report | str:
        """Check code as it stands in a file; return the report, or why the code does not run."""
        namespace: dict[str, Any] = {"__name__": "__main__", "__file__": file}
        linecache.checkcache(file)  # it is not what it was at the last try
        try:
            exec(compile(source, file, "exec"), namespace)
            attempt = self.task.defined_in(namespace)
        except Exception as error:  # it is the learner's code: whatever it raises
            missing = isinstance(error, KeyError) and error.args[0] in self.task.names
            said = f"{error.args[0]} is not defined" if missing else f"{type(error).__name__}: {error}"
            self._try(False, f"the code does not run: {said}", source)
            return f"The code does not run: {said}."
        return self._checked(attempt, source)

    def _checked(self, attempt: Any, source: str) -> Report:
        source = source or source_of(attempt)
        if same_code(source, self.task.page):  # of a stub the check itself says so
            return Report(self.task.exercise.id, self.task.title, (todo(_AS_GIVEN),))
        report = exercises.check(self.task.exercise.id, attempt)
        if report.attempted:
            first = next((each.message for each in report.findings if each.kind == "failed"), "passed")
            self._try(report.passed, first, source)
        return report

    def end(self) -> RoundReport:
        """End it here, and return the report."""
        self._keep(replace(self.kept, ended_at=utc_now().isoformat(timespec="seconds")))
        return self.report

    @property
    def report(self) -> RoundReport:
        """How it went, so far."""
        return RoundReport(self.task, self.seed, replace(self.kept, seconds=self.used_s), self.message)

    def _try(self, passed: bool, said: str, source: str) -> None:
        tried = Try(self.used_s, passed, said)
        self._keep(replace(self.kept, tries=(*self.kept.tries, tried), source=source or self.kept.source))

    def _keep(self, kept: Round) -> None:
        """Keep it at once: a round that breaks off loses nothing. It goes on where that is impossible."""
        self.kept = replace(kept, seconds=self.used_s)
        self.message = (
            progress.try_changing(lambda mine: mine.keep_round(self.key, self.kept)) or self.message
        )


_AS_GIVEN = "this is still the code as it was given: change it, then hand it in again"


@dataclass(frozen=True, repr=False)
class RoundReport(ToldInSections):
    """How a round went: time, tries, hints, what the check said; of a review which bugs were found."""

    task: CodeTask
    seed: int
    kept: Round
    message: str = ""

    @property
    def title(self) -> str:
        """What a page of it is called."""
        return "Code round"

    @property
    def points(self) -> float:
        """1.0 where the check has passed, else 0.0: for graders."""
        return float(any(each.passed for each in self.kept.tries))

    @property
    def heading(self) -> str:
        """What it was, and how it ended."""
        ended = "passed" if self.points else "not passed"
        return f"Code round, seed {self.seed}: {self.task.title}, {ended}"

    def all_sections(self) -> Iterator[Section]:
        """Yield how it went, what was found, what the check said, and where to read on."""
        tries = counted(len(self.kept.tries), "time")
        hints = f"{counted(self.kept.hints, 'hint')} of {len(self.task.hints)}"
        yield Section("How it went", points=(self._time(), f"{tries} handed in", hints))
        if self.task.review is not None:
            yield Section("The bugs", points=tuple(self._bugs()))
        if self.kept.tries:
            told = (f"after {_clock(each.seconds)}: {each.said}" for each in self.kept.tries)
            yield Section("What the check said", points=tuple(told))
        if lesson := self.task.exercise.lesson:
            said = (
                f"lesson {lesson} (`amp-lessons lab` opens the lessons); in a cell of any of them, "
                f"`exercises.solution({self.task.exercise.id!r})` shows this and other good ways"
            )
            yield Section("Where to read on", points=(said,))

    def appendix(self, level: str = "h4") -> Markup:
        """Render good code, once the round is over."""
        if not self.kept.ended_at:
            return Markup("")
        good = Markup("<{0}>Good code</{0}><pre>{1}</pre><p>{2}</p>")
        return good.format(Markup(level), self.task.answer, prose.as_html(self.task.why))

    def _time(self) -> str:
        over = self.kept.seconds - 60 * self.kept.minutes
        said = f"{_clock(self.kept.seconds)} of {self.kept.minutes} minutes"
        return f"{said}, {_clock(over)} too many" if over > 0 else said

    def _bugs(self) -> Iterator[str]:
        """Yield what was found; all there was only once the round is over, for one that was left goes on."""
        review = self.task.review
        assert review is not None
        pointed = review.read(self.kept.pointed)
        found = review.found(pointed)
        of_all = f" of {len(review.bugs)}" if self.kept.ended_at else ""
        yield f"{len(found)}{of_all} found; {counted(len(pointed), 'place')} pointed at"
        if not self.kept.ended_at:
            yield from _found(review, self.kept)
            return
        missed = [each for each in pointed if not review.found([each])]
        for bug in review.by_line(review.bugs):
            near = any(each.line in review.lines(bug) for each in missed)
            how = "found" if bug in found else "its line was named, not its cause" if near else "not found"
            yield f"{review.place(bug)}: {bug.cause} ({how})"


def _found(review: Review, kept: Round) -> list[str]:
    """Say where each bug is that was found, in the order of the lines."""
    found = review.by_line(review.found(review.read(kept.pointed)))
    return [f"{review.place(bug)}, {bug.cause}" for bug in found]


def _clock(seconds: float) -> str:
    """Write seconds as minutes and seconds, 4:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
