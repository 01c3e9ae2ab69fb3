"""Grade a folder of submissions: read each notebook, judge each attempt, let none disturb another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from amp_lessons._base.text.bars import with_bar
from amp_lessons._base.worker import client as worker
from amp_lessons._base.worker.host import HostEndedError, host
from amp_lessons.course import exercises
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.teaching.grading import reading, wall
from amp_lessons.teaching.grading.grades import Grade, Graded, Grades
from amp_lessons.teaching.grading.judging import Terms, judged
from amp_lessons.teaching.grading.reading import Found
from amp_lessons.teaching.grading.submissions import Submission, submissions_in

_TO_READ = worker.Limits(20.0, 2**30)


def grade(folder: Path | str, exercise_ids: Sequence[str] = (), terms: Terms | None = None) -> Grades:
    """Grade what lies in ``folder``: these exercises, or all of the lessons that anybody has handed in.

    Raises ValueError for an exercise that is not there, for a folder without notebooks, and where this
    machine has no wall and the terms do not do without one.
    """
    chosen = [exercises.shelf.find(each) for each in exercise_ids] or exercises.catalog()
    terms = terms or Terms()
    _require_wall(terms)
    submissions = submissions_in(Path(folder))
    host(bed.PRELOAD)  # started here, once, and not by several threads
    with ThreadPoolExecutor(terms.jobs) as pool:
        read = list(pool.map(_read, submissions, itertools.repeat(chosen)))
    if not exercise_ids:
        handed_in = {lesson for reading in read for lesson in reading.lessons}
        chosen = [each for each in chosen if each.lesson in handed_in]
    reports = _judge_all(read, terms)
    learners = tuple(_graded(reading, chosen, reports) for reading in read)
    return Grades(learners, str(wall.standing()))


def grade_notebook(path: Path | str, exercise_ids: Sequence[str], terms: Terms | None = None) -> list[Grade]:
    """Grade these exercises in one notebook: what other graders call. Raises ValueError as ``grade`` does."""
    terms = terms or Terms()
    _require_wall(terms)
    chosen = [exercises.shelf.find(each) for each in exercise_ids]
    read = _read(Submission("", (Path(path),)), chosen)
    return list(_graded(read, chosen, _judge_all([read], terms)).grades)


def _require_wall(terms: Terms) -> None:
    if not (terms.unprotected or wall.standing().program):
        raise ValueError(
            f"{wall.standing()} Or say that you grade without a wall: --unprotected, or "
            "Terms(unprotected=True), on a machine that holds nothing that is not to be read"
        )


@dataclass(frozen=True)
class Reading:
    """What was found in the notebooks of one learner."""

    learner: str
    found: dict[str, Found]
    lessons: frozenset[str]
    problems: tuple[str, ...]


def _read(submission: Submission, chosen: Sequence[Exercise]) -> Reading:
    """Read notebooks in a process of its own: a file that was made to break a parser breaks nothing else."""
    paths, ids = list(map(str, submission.notebooks)), [each.id for each in chosen]
    try:
        with worker.Worker(host(bed.PRELOAD), {}, _TO_READ) as reader:
            told = reader.call(f"{reading.__name__}:read", paths, ids)
    except (worker.Ended, worker.Raised, HostEndedError) as error:
        names = ", ".join(path.name for path in submission.notebooks)
        told = {"lessons": [], "found": [], "problems": [f"{names}: it cannot be read: {error}"]}
    found = {each["exercise_id"]: Found(**each) for each in told["found"]}
    problems = (*submission.problems, *told["problems"])
    return Reading(submission.learner, found, frozenset(told["lessons"]), problems)


def _judge_all(read: Sequence[Reading], terms: Terms) -> dict[tuple[str, str], Report]:
    """Judge so many at once; no learner's code runs in this process."""
    tasks = {
        (reading.learner, each.exercise_id): each.source
        for reading in read
        for each in reading.found.values()
        if each.state == "written"
    }
    pool = ThreadPoolExecutor(terms.jobs)
    try:
        futures = {key: pool.submit(judged, key[1], source, terms) for key, source in tasks.items()}
        for _ in with_bar(as_completed(futures.values()), "checks", len(futures)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)  # whoever interrupts does not wait for those to come
    return {key: future.result() for key, future in futures.items()}


def _graded(reading: Reading, chosen: Sequence[Exercise], reports: dict[tuple[str, str], Report]) -> Graded:
    grades = tuple(_grade(reading, each, reports.get((reading.learner, each.id))) for each in chosen)
    return Graded(reading.learner, grades, reading.problems)


_WORDS = {"stub": "not attempted yet", "missing": "not handed in", "not python": "not passed"}


def _grade(reading: Reading, exercise: Exercise, report: Report | None) -> Grade:
    found = reading.found.get(exercise.id)
    if found is None:
        return Grade(exercise.id, exercise.title, "not handed in")
    passed = report is not None and report.passed
    remarks = (*_edited(found, passed), *found.remarks)
    if found.state == "not python":
        remarks = ("the cell is not Python: it has a mistake in its syntax", *remarks)
    status, points = (report.status, report.points) if report else (_WORDS[found.state], 0.0)
    return Grade(exercise.id, exercise.title, status, points, report, remarks, found.source)


def _edited(found: Found, passed: bool) -> tuple[str, ...]:
    """Return a remark where the notebook shows another verdict than grading has come to."""
    if found.stored == "passed" and not passed:
        return ("the notebook shows “passed” below the check, and checking it again does not",)
    return ()
