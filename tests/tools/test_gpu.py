"""``make gpu`` without a GPU: what is kept and gone on with, and each kind of part on the CPU, in small."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from amp_lessons import bench as amp_bench
from amp_lessons._base.typed_json import made
from amp_lessons.cli import bench as bench_command
from amp_lessons.course.bench import cases, folders
from tests.course.bench.tiny import TinyWorkload
from tools.gpu import __main__ as command
from tools.gpu import parts
from tools.gpu.__main__ import conduct, run_apart
from tools.gpu.page import page
from tools.gpu.parts import PartReport
from tools.gpu.recording import Part, Recording, Result, Setup, read, resumed

SETUP = Setup("Pretended 1", "9.0", "570", "2.11.0+cu130", "13.0", "3.11.7", "5.0", "0.3.0", 8)
NAMES = ["tests: a", "tests: b", "notebooks: c"]
RESULTS = (Result("good", "passed"), Result("bad|one", "failed", "1 is not 2"))
DONE = Part("done", RESULTS, ("[measured] 3 ms",))


class Lost(BaseException):
    """Whatever ends a process without asking it."""


class Runs:
    """Runs parts without running them, and notes which."""

    def __init__(self, *outcomes) -> None:
        self.names, self.limits, self._outcomes = [], [], dict(outcomes)

    def __call__(self, name: str, report: Path, limit_s: float) -> Part | None:
        self.names.append(name)
        self.limits.append(limit_s)
        outcome = self._outcomes.get(name, DONE)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def go(folder: Path, runs: Runs, seconds: float = 1000.0, names=NAMES) -> Recording:
    """Make one call, and return what is kept by then, whatever ended it."""
    path, recording = resumed(folder, SETUP)
    with suppress(Lost, KeyboardInterrupt):
        conduct(recording, path, names, time.monotonic() + seconds, runs, "abc")
    return read(path)


def test_every_part_is_kept_at_once_and_none_is_run_twice(tmp_path):
    first = Runs(("notebooks: c", Lost()))
    kept = go(tmp_path, first)
    assert list(kept.parts) == NAMES[:2]
    assert kept.begun == {"notebooks: c": 1}
    assert replace(kept.parts["tests: a"], at="", commit="", seconds=0.0) == DONE
    second = Runs()
    assert list(go(tmp_path, second).parts) == NAMES
    assert second.names == ["notebooks: c"]
    third = Runs()
    assert go(tmp_path, third).begun == {}
    assert third.names == []


def test_what_ends_everything_twice_is_not_begun_again_and_the_next_is(tmp_path):
    for _ in range(2):
        go(tmp_path, Runs(("tests: a", Lost())))
    kept = go(tmp_path, runs := Runs())
    assert runs.names == NAMES[1:]
    assert (kept.parts["tests: a"].status, kept.begun) == ("cut short", {})
    assert "begun 2 times" in kept.parts["tests: a"].message


def test_the_deadline_and_ctrl_c_are_no_fault_of_a_part(tmp_path):
    for outcome in (None, KeyboardInterrupt()):
        kept = go(tmp_path, runs := Runs(("tests: a", outcome)), seconds=100.0)
        assert (kept.parts, kept.begun) == ({}, {})
        assert runs.names == ["tests: a"]
        assert 50 < runs.limits[0] <= 100
    runs = Runs()
    assert list(go(tmp_path, runs, names=NAMES[:1]).parts) == NAMES[:1]
    path, recording = resumed(tmp_path, SETUP)
    conduct(recording, path, NAMES, time.monotonic() + 1.0, runs)
    assert runs.names == ["tests: a"], "too little time to begin"


def test_a_part_that_takes_too_long_is_cut_short_and_what_was_lacking_is_tried_again(tmp_path):
    kept = go(tmp_path, Runs(("tests: a", None), ("tests: b", Part("not possible", message="lacks x"))))
    assert kept.parts["tests: a"].message == "it took longer than 300 seconds"
    go(tmp_path, again := Runs())
    assert again.names == ["tests: b"]


def test_each_setup_has_a_file_and_a_damaged_one_is_set_aside(tmp_path):
    go(tmp_path, Runs())
    other, _ = resumed(tmp_path, replace(SETUP, threads=2))
    assert other.name == "pretended-1-torch-2.11.0-cu130-2.json"
    path, recording = resumed(tmp_path, SETUP)
    assert len(recording.parts) == 3
    path.write_text(path.read_text()[:-9])
    assert resumed(tmp_path, SETUP)[1].parts == {}
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_the_page_says_what_failed_on_what_and_when(tmp_path):
    kept = go(tmp_path, Runs(("tests: b", Part("cut short", message="it hung"))))
    written = page(kept, tmp_path / "r.json")
    (path,) = tmp_path.glob("*.md")
    assert path.read_text("utf-8") == page(kept, path.with_suffix(".json"))
    assert "Recorded on Pretended 1, 20" in written
    assert "1 is not 2" in written
    assert "cut short: it hung" in written
    assert "[measured] 3 ms" in written
    path.unlink()
    assert command.main(["--pages", "--out", str(tmp_path)]) == 0
    assert path.exists()


def test_a_machine_without_a_gpu_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "_setup", lambda device, log: "PyTorch was built without CUDA")
    assert command.main(["--out", str(tmp_path)]) == 1
    assert "has none to use: PyTorch was built without CUDA" in capsys.readouterr().err
    assert command.main(["--list"]) == 0
    assert "notebooks  every notebook" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.slow
def test_a_part_runs_apart_and_its_death_is_told(tmp_path):
    log = tmp_path / "log"
    came = run_apart(["tests: no_such_file.py", str(tmp_path / "r"), "cpu", ""], log, 120.0)
    assert came.status == "done"
    assert came.results == ()
    assert run_apart(["tests: x", str(tmp_path / "r"), "cpu", ""], log, 0.01) is None
    came = run_apart(["tests: x", str(tmp_path / "no" / "folder"), "cpu", ""], log, 120.0)
    assert came.message.startswith("its process ended with 1: FileNotFoundError")


TESTS = """
import pytest

@pytest.mark.GPU
def test_good(): pass

@pytest.mark.GPU
@pytest.mark.nobody_knows_this_mark
def test_bad():
    assert 1 == 2, "one is not two"

@pytest.mark.GPU
@pytest.mark.skipif(True, reason="needs a GPU of 2030")
def test_skipped(): pass

@pytest.mark.GPU
def test_broken(nowhere): pass

def test_without_the_mark():
    assert False
""".replace("mark.GPU", "mark.gpu")
RUN = """
import sys
from pathlib import Path
from tools.gpu import parts
name, root = sys.argv[1], Path(sys.argv[2])
parts.run(name, parts.PartReport(root / "r.json"), "cpu", "", root)
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_tests_are_told_one_by_one(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    (tmp_path / "tests" / "test_other.py").write_text('words = "pytest.mark.gpu"\n# pytest.mark.gpu\n')
    (name,) = parts.names("tests", tmp_path)
    asked = [sys.executable, "-c", RUN, name, str(tmp_path)]
    subprocess.run(asked, cwd=parts.ROOT, check=True, capture_output=True, timeout=100)
    part = made(Part, json.loads((tmp_path / "r.json").read_text()))
    assert part.status == "done"
    outcomes = {each.name.rpartition("::")[2]: (each.outcome, each.message) for each in part.results}
    expected = {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_broken": "failed",
    }
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == expected
    assert "one is not two" in outcomes["test_bad"][1]
    assert "needs a GPU of 2030" in outcomes["test_skipped"][1]


def test_the_tests_and_notebooks_of_this_course_are_found():
    found = parts.names("tests")
    assert {"tests: tests/autocast/test_gpu.py", "tests: tests/course/bench/test_cases.py"} <= set(found)
    assert not [name for name in found if "tools" in name]
    assert "notebooks: 03_loss_scaling.ipynb" in parts.names("notebooks")
    assert parts.names("compiled") == [f"compiled: {model}" for model in amp_bench.benched()]


@pytest.mark.slow
def test_a_notebook_runs_to_its_end_and_stays_as_it_is(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    fails = "print('[measured] 3 ms'); print('other'); 1 / 0", "assert 2 < 1"
    sources = (*fails, "import amp_lessons; '[computed] 5'", "1")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "00_some.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_bytes()
    report = PartReport(tmp_path / "r.json")
    parts.run("notebooks: 00_some.ipynb", report, "cpu", "", tmp_path)
    assert report.part.lines[0] == "[measured] 3 ms"
    assert len(report.part.lines) == 1 + ("[computed] 5" in report.part.lines)
    said = f"{cells[0].id}: ZeroDivisionError: division by zero; {cells[1].id}: AssertionError: assert 2 < 1"
    assert report.part.results == (Result("00_some.ipynb", "failed", said),)
    assert path.read_bytes() == before


@pytest.mark.thorough
@pytest.mark.slow
def test_the_bench_writes_a_recording_that_lesson_05_shows(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setitem(amp_bench.WORKLOADS, "Tiny", TinyWorkload())
    cases.predicted_bytes.cache_clear()
    report, declare = PartReport(tmp_path / "r.json"), bench_command.add_arguments

    def quick(parser):
        declare(parser)
        parser.set_defaults(seconds=0.01)

    monkeypatch.setattr(bench_command, "add_arguments", quick)
    parts.run("bench: Tiny", report, "cpu", str(tmp_path / "bench"))
    assert report.part.status == "done"
    assert any("Tiny" in line for line in report.part.lines)
    (kept,) = folders.recordings(tmp_path / "bench")
    assert {key[0] for key in kept.results} == {"Tiny"}
