"""An exercise on the bench is graded by its judge; of that nothing is to be had where a submission runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_lessons import exercises, grading
from amp_lessons._base.worker.client import Ended, Raised, Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.teaching.grading import processes
from amp_lessons.teaching.grading.judging import Task, judged
from amp_lessons.teaching.grading.processes import EndedError, Limits, walled_host
from tests.teaching.grading.handed_in import hand_in

CODES = "decode_bits"
ATTEMPT = f"def {CODES}(bits, exponent_bits, mantissa_bits):\n    "
RIGHT = exercises.shelf.find(CODES).solution_source


def said_of(source: str, exercise_id: str = CODES):
    """Return the code and the message of the first finding on a submission, and whether it passed."""
    report = judged(Task(exercise_id, source, 4.0, Limits()))
    return report.findings[0].code, report.findings[0].message, report.passed


@pytest.mark.few
@pytest.mark.parametrize("exercise", exercises.catalog(), ids=lambda each: each.id)
def test_a_solution_gets_its_points_and_a_stub_none(exercise):
    assert said_of(exercise.solution_source, exercise.id)[2]
    code, _, passed = said_of(exercise.stub, exercise.id)
    assert not passed
    assert (code == "not_attempted") != exercise.is_patient  # whose stub runs, and is wrong


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        (f"{ATTEMPT}return 'three'", "wrong_return_type", "which is no float"),
        (f"{ATTEMPT}while True: pass", "time_limit", "it was at line 2: while True: pass"),
        (f"{ATTEMPT}import os; os._exit(3)", "process_ended", "exit code 3"),
        ("1 / 0", "raised", "ZeroDivisionError: division by zero (line 1: 1 / 0)"),
        ("answer = 1", "raised", f"KeyError: '{CODES}'"),
    ],
    ids=["wrong", "loops", "exits", "is not defined", "defines another name"],
)
def test_what_is_wrong_is_said_with_its_line(source, code, words):
    first, message, passed = said_of(source)
    assert not passed
    assert first == code
    assert words in message


needs_namespaces = pytest.mark.skipif(
    not processes.surroundings().apart, reason="this machine allows no namespaces"
)


@pytest.fixture(scope="module")
def host():
    """Start one host behind the wall for all tests whose attempts leave it alive."""
    with walled_host(Limits(), 300.0) as started:
        yield started


def answer(host, source: str):
    """Return what ``attempt()`` of this source returns in a worker of this host."""
    with Worker(host, {"source": source, "names": ["attempt"]}) as worker:
        return worker.call(Handle(0))


@needs_namespaces
@pytest.mark.parametrize(
    "module",
    ["shelf", "checking", "bed", "small_formats.mistakes", f"{CODES}.check", f"{CODES}.solution"],
)
def test_no_answer_and_no_judge_can_be_imported(host, module):
    with pytest.raises(Raised, match=r"^(ModuleNotFound|Import)Error"):
        answer(host, f"def attempt():\n    import amp_lessons.course.exercises.{module}")


@needs_namespaces
def test_what_of_ours_runs_there_needs_nothing_that_is_hidden(host):
    folder = Path(exercises.__file__).parent
    files = [each.relative_to(folder) for each in folder.rglob("*_there.py")]
    names = [".".join(("amp_lessons.course.exercises", *each.with_suffix("").parts)) for each in files]
    assert names
    source = f"def attempt():\n    import importlib\n    for each in {names!r}: importlib.import_module(each)"
    answer(host, source)


def test_what_its_processes_take_together_is_limited():
    source = """
import os, time
def attempt():
    for _ in range(8):
        if os.fork() == 0:
            hog = bytearray(200 * 2**20)
            time.sleep(60)
    time.sleep(60)
"""
    with pytest.raises((EndedError, Ended)), walled_host(Limits(memory_bytes=2**30), 200.0) as host:
        answer(host, source)


def test_an_attempt_may_hold_a_data_class_with_annotations_as_text(host):
    source = """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Pair:
    one: int
def attempt():
    return Pair(3).one
"""
    assert answer(host, source) == 3


def test_a_submission_that_patches_the_judge_patches_nothing():
    patch = "import torch\ntorch.equal = torch.Tensor.isfinite = lambda *args: True\n"
    assert not said_of(f"{patch}{ATTEMPT}return 2.0")[2]
    assert said_of(patch + RIGHT)[2]


HOSTILE = f"""
from amp_lessons import exercises
class Passed:
    passed, points, status, attempted, findings = True, 1.0, "passed", True, ()
exercises.check = lambda *args, **options: Passed()
def {CODES}(bits, exponent_bits, mantissa_bits):
    return exercises.check()
"""


@needs_namespaces
@pytest.mark.parametrize(
    ("source", "points", "status"),
    [
        (RIGHT, 1.0, "passed"),
        (
            RIGHT.replace("    mantissa =", "    import os; here = os.getpid()\n    mantissa =", 1),
            1.0,
            "passed",
        ),
        (HOSTILE, 0.0, "not passed"),
        (f"{ATTEMPT}import os; os._exit(0)", 0.0, "not passed"),
    ],
    ids=["right", "right, with an unusual import", "hostile", "exits"],
)
def test_whatever_a_submission_imports_the_judge_looks_at_its_answers(tmp_path, source, points, status):
    path = hand_in(tmp_path / "ada.ipynb", exercises.shelf.find(CODES).lesson, **{CODES: source})
    (grade,) = grading.grade_notebook(path, [CODES], grading.Terms(limit_s=4.0))
    assert (grade.points, grade.status) == (points, status), grade
