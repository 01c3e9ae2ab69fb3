"""Grade a folder of submissions: read each notebook, judge each attempt, let none disturb another."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

from amp_lessons._base.text.bars import with_bar
from amp_lessons.course import exercises, lessons
from amp_lessons.course.exercises.exercise import Exercise, cell_id
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.teaching.grading import judging, processes
from amp_lessons.teaching.grading.grades import Grade, Graded, Grades
from amp_lessons.teaching.grading.judging import Task, judged, not_judged
from amp_lessons.teaching.grading.processes import EndedError, Limits, Walled
from amp_lessons.teaching.grading.reading import Found, Wanted
from amp_lessons.teaching.grading.submissions import Submission, submissions_in

_READING_S = 60.0


@dataclass(frozen=True)
class Terms:
    """How to grade: within which time and limits, how many attempts at once, and whether without a wall, too.

    ``limit_s`` is the time of one check in seconds. ``unprotected`` says that learners' code may run where
    nothing stands between it and what this account may read and write.
    """

    limit_s: float = 20.0
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1
    unprotected: bool = False


def grade(folder: Path | str, exercise_ids: Sequence[str] = (), terms: Terms | None = None) -> Grades:
    """Grade what lies in ``folder``: these exercises, or all of the lessons that anybody has handed in.

    Raises ValueError for an exercise that is not there, for a folder without notebooks, and where this
    machine has no wall and the terms do not do without one.
    """
    chosen = [exercises.shelf.find(each) for each in exercise_ids] or exercises.catalog()
    terms = terms or Terms()
    _require_wall(terms)
    submissions = submissions_in(Path(folder))
    wanted = wanted_of(chosen)
    with ThreadPoolExecutor(terms.jobs) as pool:
        read = list(pool.map(lambda each: _read(each, wanted), submissions))
    if not exercise_ids:
        handed_in = {lesson for reading in read for lesson in reading.lessons}
        chosen = [each for each in chosen if each.lesson in handed_in]
    reports = _judge_all(_tasks(read, terms), terms.jobs)
    learners = tuple(_graded(reading, chosen, reports) for reading in read)
    return Grades(learners, str(processes.surroundings()))


def grade_notebook(path: Path | str, exercise_ids: Sequence[str], terms: Terms | None = None) -> list[Grade]:
    """Grade these exercises in one notebook: what other graders call. Raises ValueError as ``grade`` does."""
    terms = terms or Terms()
    _require_wall(terms)
    chosen = [exercises.shelf.find(each) for each in exercise_ids]
    reading = _read(Submission("", (Path(path),)), wanted_of(chosen))
    return list(_graded(reading, chosen, _judge_all(_tasks([reading], terms), 1)).grades)


def _require_wall(terms: Terms) -> None:
    if not (terms.unprotected or processes.surroundings().apart):
        raise ValueError(
            f"{processes.surroundings()} Or say that you grade without a wall: --unprotected, or "
            "Terms(unprotected=True), on a machine that holds nothing that is not to be read"
        )


def wanted_of(chosen: Sequence[Exercise]) -> list[Wanted]:
    """Return what the reading process has to know of exercises."""
    checks = _original_checks()
    return [
        {
            "id": each.id,
            "names": each.names,
            "stub": each.stub,
            "solutions": [
                each.solution_source,
                *(way.source for way in each.other_ways if _is_python(way.source)),
            ],
            "lesson": each.lesson,
            "check": checks.get(each.id, ""),
        }
        for each in chosen
    ]


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _original_checks() -> dict[str, str]:
    """Return the cell of each check as the course has it, by the exercise's id."""
    ids = {cell_id(each.id, "check"): each.id for each in exercises.catalog()}
    found = {}
    for path in sorted(lessons.originals().glob("[0-9][0-9]_*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell.get("id") in ids:
                found[ids[cell["id"]]] = "".join(cell["source"])
    return found


@dataclass(frozen=True)
class Reading:
    """What was found in the notebooks of one learner."""

    learner: str
    found: dict[str, Found]
    lessons: frozenset[str]
    problems: tuple[str, ...]


def _read(submission: Submission, wanted: list[Wanted]) -> Reading:
    found: dict[str, Found] = {}
    of_lessons: set[str] = set()
    problems = list(submission.problems)
    for path in submission.notebooks:
        answer = _read_one(path, wanted)
        if "problem" in answer:
            problems.append(f"{path.name}: {answer['problem']}")
            continue
        of_lessons.update(answer["lessons"])
        for each in map(_found, answer["found"]):
            if each.exercise_id not in found or found[each.exercise_id].state != "written":
                found[each.exercise_id] = each
            elif each.state == "written":
                problems.append(f"{path.name}: a second attempt at {each.exercise_id}, which was left out")
    return Reading(submission.learner, found, frozenset(of_lessons), tuple(problems))


def _read_one(path: Path, wanted: list[Wanted]) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8", errors="replace")
        with Walled(
            "amp_lessons.teaching.grading.reader", Limits(memory_bytes=2**30), most_s=_READING_S
        ) as reader:
            reader.send({"text": text, "wanted": wanted})
            return reader.receive(_READING_S)
    except (EndedError, OSError) as error:
        return {"problem": f"it cannot be read: {error}"}


def _found(data: dict[str, Any]) -> Found:
    fields: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each for name, each in data.items()
    }
    return Found(**fields)


def _tasks(read: Sequence[Reading], terms: Terms) -> dict[tuple[str, str], Task]:
    return {
        (reading.learner, each.exercise_id): Task(each.exercise_id, each.source, terms.limit_s, terms.limits)
        for reading in read
        for each in reading.found.values()
        if each.state == "written"
    }


def _judge_all(tasks: dict[tuple[str, str], Task], jobs: int) -> dict[tuple[str, str], Report]:
    """Judge in processes that stay. No learner's code runs in them."""
    processes.surroundings()
    with ProcessPoolExecutor(min(jobs, max(1, len(tasks))), _judges()) as pool:
        futures = {key: pool.submit(judged, task) for key, task in tasks.items()}
        for _ in with_bar(as_completed(futures.values()), "checks", len(futures)):
            pass
    return {key: _judged_anyhow(future, tasks[key]) for key, future in futures.items()}


def _judges() -> BaseContext:
    """Start judges as forks of a process that has loaded the course, once for all of them."""
    context = get_context("forkserver")
    context.set_forkserver_preload([judging.__name__])
    return context


def _judged_anyhow(future: Future[Report], task: Task) -> Report:
    """Return what was judged; where a judge's process has ended, judge once more, alone in another."""
    with suppress(BrokenProcessPool):
        return future.result()
    try:
        with ProcessPoolExecutor(1, _judges()) as pool:
            return pool.submit(judged, task).result()
    except BrokenProcessPool:
        return not_judged(task)


def _graded(reading: Reading, chosen: Sequence[Exercise], reports: dict[tuple[str, str], Report]) -> Graded:
    grades = tuple(_grade(reading, each, reports.get((reading.learner, each.id))) for each in chosen)
    return Graded(reading.learner, grades, reading.problems)


_WORDS = {"stub": "not attempted yet", "missing": "not handed in", "not python": "not passed"}


def _grade(reading: Reading, exercise: Exercise, report: Report | None) -> Grade:
    found = reading.found.get(exercise.id)
    if found is None:
        return Grade(exercise.id, exercise.title, "not handed in")
    plain = Grade(exercise.id, exercise.title, "", 0.0, report, found.remarks, found.source)
    if report is None:
        syntax = (
            ("the cell is not Python: it has a mistake in its syntax",) if found.state == "not python" else ()
        )
        remarks = (*syntax, *_edited(found, False), *found.remarks)
        return replace(plain, status=_WORDS[found.state], remarks=remarks)
    remarks = (*_edited(found, report.passed), *found.remarks)
    return replace(plain, status=report.status, points=report.points, remarks=remarks)


def _edited(found: Found, passed: bool) -> tuple[str, ...]:
    """Return a remark where the notebook shows another verdict than grading has come to."""
    if found.stored == "passed" and not passed:
        return ("the notebook shows “passed” below the check, and checking it again does not",)
    return ()
