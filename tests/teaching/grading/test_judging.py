"""An exercise on the bench is graded by its judge; of that nothing is to be had where a submission runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_lessons import exercises, grading
from amp_lessons._base.worker import client
from amp_lessons._base.worker.client import Ended, Raised, Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.teaching.grading import reading
from amp_lessons.teaching.grading.judging import judged
from amp_lessons.teaching.grading.wall import EndedError, Limits, standing, walled_host

CODES = "decode_bits"
ATTEMPT = f"def {CODES}(bits, exponent_bits, mantissa_bits):\n    "
RIGHT = exercises.shelf.find(CODES).solution_source


def said_of(source: str, exercise_id: str = CODES):
    """Return the code and the message of the first finding on a submission, and whether it passed."""
    report = judged(exercise_id, source, grading.Terms(limit_s=4.0))
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


needs_a_wall = pytest.mark.skipif(not standing().program, reason="no wall works on this machine")


@pytest.fixture(scope="module")
def host():
    """Start one host behind the wall for all tests whose attempts leave it alive."""
    with walled_host(standing(), Limits()) as started:
        yield started


def answer(host, source: str):
    """Return what ``attempt()`` of this source returns in a worker of this host."""
    with Worker(host, {"source": source, "names": ["attempt"]}) as worker:
        return worker.call(Handle(0))


@needs_a_wall
@pytest.mark.parametrize(
    "module",
    ["shelf", "bed", "small_formats.mistakes", f"{CODES}.check", f"{CODES}.solution"],
)
def test_no_answer_and_no_judge_can_be_imported(host, module):
    with pytest.raises(Raised, match=r"^(ModuleNotFound|Import)Error"):
        answer(host, f"def attempt():\n    import amp_lessons.course.exercises.{module}")


@needs_a_wall
def test_what_of_ours_runs_there_needs_nothing_that_is_hidden(host):
    folder = Path(exercises.__file__).parent
    inside = [each.relative_to(folder).with_suffix("").parts for each in folder.rglob("*_there.py")]
    names = [".".join(("amp_lessons.course.exercises", *parts)) for parts in inside]
    assert names
    answer(
        host,
        f"def attempt():\n    import importlib\n    for each in {names!r}: importlib.import_module(each)",
    )


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
    with pytest.raises((EndedError, Ended)), walled_host(standing(), Limits(memory_bytes=2**30)) as host:
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


SEEKS = f"""
def sought(*roots):
    import pathlib
    for root in roots:
        for path in pathlib.Path(root).rglob("{CODES}/solution.py"):
            space = {{}}
            exec(path.read_text(), space)
            return space["{CODES}"]
"""
FORGED = """
def forged():
    from amp_lessons._base.worker.plain import encode
    return encode({"ok": {"result": None, "args": [], "findings": [], "passed": True}})
"""
HOSTILE = {
    "imports behind imports": f"""
import amp_lessons.audit, importlib, sys
for each in list(sys.modules.values()):
    for name in ("course", "exercises", "shelf"):
        getattr(each, name, None)
{CODES} = importlib.import_module("amp_lessons.course.exercises.{CODES}.solution").{CODES}
""",
    "our own check": f"""
from amp_lessons import exercises
class Passed:
    passed, points, status, attempted, findings = True, 1.0, "passed", True, ()
exercises.check = lambda *args, **options: Passed()
def {CODES}(bits, exponent_bits, mantissa_bits):
    return exercises.check()
""",
    "unpickling": f"""
class Answer(float):
    def __reduce__(self):
        return eval, ("__import__('amp_lessons').exercises.shelf.find('{CODES}').solution",)
{ATTEMPT}return Answer(2.0)
""",
    "patched PyTorch": f"""
import math, torch
torch.equal = torch.Tensor.isfinite = torch.Tensor.eq = math.isclose = math.isnan = lambda *args, **how: True
{ATTEMPT}return 2.0
""",
    "threads": f"""{FORGED}
import gc, threading, time
def wait():
    while True:
        for each in gc.get_objects():
            if type(each).__name__ == "_Server":
                each._connection.sendall(forged())
threading.Thread(target=wait, daemon=True).start()
{ATTEMPT}import time; time.sleep(0.5); return 2.0
""",
    "atexit": f"""{FORGED}
import atexit, os
atexit.register(lambda: [os.write(each, forged()) for each in range(3, 32)])
{ATTEMPT}raise SystemExit(0)
""",
    "signals": f"""{FORGED}
import os, signal
def forge(*_):
    for each in range(3, 16):
        try: os.write(each, forged())
        except OSError: pass
for each in (signal.SIGXCPU, signal.SIGTERM, signal.SIGALRM):
    signal.signal(each, forge)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
{ATTEMPT}os.kill(os.getppid(), signal.SIGINT); signal.pause(); return 2.0
""",
    "files": f"""{SEEKS}
import amp_lessons, os
{CODES} = sought(os.path.dirname(amp_lessons.__file__), "/work", "/home", "/root", "/tmp")
""",
    "/proc": f"""{SEEKS}
import glob, os
for memory in glob.glob("/proc/[0-9]*/mem"):
    if str(os.getpid()) not in memory:
        open(memory, "r+b")
{CODES} = sought(*(f"{{each}}/work" for each in glob.glob("/proc/*/root")), *glob.glob("/proc/*/cwd"))
""",
    "environment": f"""{SEEKS}
import os, sys
{CODES} = sought(*[each for value in os.environ.values() for each in value.split(":")], *sys.path)
""",
    "the pipe": f"""{FORGED}
{ATTEMPT}
    import os
    for each in range(3, 32):
        try: os.write(each, forged() * 20)
        except OSError: pass
    return 2.0
""",
    "the caller's frames": f"""
import sys
{ATTEMPT}
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "args" in value:
                value.update(noticed=True, passed=True, right=True, raised=None)
        frame = frame.f_back
    return 2.0
""",
    "answers as asked": f"""
class Yes(float):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = lambda *_: True
    __hash__, __getattr__ = float.__hash__, lambda self, name: self
    __float__ = __sub__ = __rsub__ = __abs__ = lambda self, *_: self
    __class__ = property(lambda self: float)
{ATTEMPT}return Yes("nan")
""",
}


def judged_there(host, exercise_id: str, source: str):
    """Return the codes of the findings on a submission in a worker of this host, and whether it passes."""
    exercise = exercises.shelf.find(exercise_id)
    payload = {"source": source, "names": list(exercise.names), "lines": {}}
    said = bed.judged(exercise_id, host, payload, client.Limits(4.0), 5, exercise.meets_autocast)
    report = Report.from_judge(exercise_id, exercise.title, said)
    return [each.code for each in report.findings], report.passed


HOSTILE_CLASS = """
class LossScaler:
    def __init__(self, *args, **how):
        self.asked = []
    def __getattr__(self, name):
        return lambda *args: self.asked.append(name) or (args[0] if args else 65536.0)
"""


@needs_a_wall
@pytest.mark.parametrize("attack", [*HOSTILE, "a class that answers as it is asked"])
def test_no_submission_gets_points_by_code_of_its_own(host, attack):
    what = (CODES, HOSTILE[attack]) if attack in HOSTILE else ("loss_scaler", HOSTILE_CLASS)
    codes, passed = judged_there(host, *what)
    assert not passed
    assert "checker_failed" not in codes
    assert judged_there(host, CODES, RIGHT)[1]  # and the next one gets what it has earned


HONEST = {  # what stands in the cells of the stub, and in those before and after it
    "a time in front": ("", f"%%time\n{RIGHT}", ""),
    "a shell": ("files = !ls\n!pip list\n%matplotlib inline", f"{RIGHT}\nhere = %pwd", "files"),
    "a dict, filled in a loop": (
        "table = {}\nfor bits in range(2**16):\n    table[bits] = bits",
        RIGHT.replace("    mantissa =", "    bits = table.get(bits, bits)\n    mantissa =", 1),
        "",
    ),
    "a plot": ("import matplotlib.pyplot as plt", f"{RIGHT}\nplt.plot([1, 2])\nplt.show()", "plt.close()"),
    "prints": (
        "print('begin')",
        RIGHT.replace("    mantissa =", "    print(bits)\n    mantissa =", 1),
        "1 / 0",
    ),
    "a name, patched later": (
        "def value(*args):\n    return 0.0",
        f"{RIGHT}\ninner = {CODES}\ndef {CODES}(bits, exponent_bits, mantissa_bits):\n"
        "    return value(bits, exponent_bits, mantissa_bits)",
        "value = inner",
    ),
}


@pytest.mark.parametrize("unusual", HONEST)
def test_what_is_unusual_costs_an_honest_learner_nothing(host, unusual):
    before, stub, after = HONEST[unusual]
    cells = [reading.Cell("", source, "") for source in (before, stub, after, f'views.check("{CODES}")')]
    assert judged_there(host, CODES, reading.found_of(cells, exercises.shelf.find(CODES)).source)[1]
