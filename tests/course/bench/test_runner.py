"""A benchmark that is interrupted, killed, resumed, or finds a damaged file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from amp_lessons._base.files import were_set_aside
from amp_lessons.course.bench.cases import all_cases
from amp_lessons.course.bench.folders import file_name, unreadable
from amp_lessons.course.bench.results import Recording, Result, read, write
from amp_lessons.course.bench.runner import outstanding, resume, run_cases
from tests.course.bench.test_results import AT, SETUP

NAME = file_name(SETUP, "small")
CASES = all_cases(["A", "B"], ["fp32", "fp16"], ["eager"], "small")
NOTHING = Recording(SETUP, "small")


def _measured(case, outcome="measured"):
    return Result(*case.key, outcome, 1, AT, samples_ms=(1.0, 1.1))


def _interrupted_at(stop):
    def measure(case):
        if case == stop:
            raise KeyboardInterrupt
        return _measured(case)

    return measure


@pytest.fixture
def path(tmp_path):
    return tmp_path / NAME


def left(recording, fresh=False, retry=False):
    return outstanding(CASES, recording, fresh=fresh, retry=retry)


def test_cases_are_measured_in_order_and_each_result_is_on_disk_before_the_next_starts(path):
    seen = []

    def measure(case):
        on_disk = read(path)
        seen.append((len(on_disk.results), on_disk.running))
        return _measured(case)

    recording = run_cases(CASES, NOTHING, path, measure)
    assert seen == [(i, case.key) for i, case in enumerate(CASES)]
    assert list(recording.results) == [case.key for case in CASES]
    assert read(path) == recording


def test_an_interrupted_run_keeps_what_it_has_and_goes_on_from_there(path):
    with pytest.raises(KeyboardInterrupt):
        run_cases(CASES, NOTHING, path, _interrupted_at(CASES[2]))
    there, recording, words = resume(path.parent, SETUP, "small")
    assert (there, words) == (path, "2 earlier results are kept.")
    assert left(recording) == CASES[2:]
    finished = run_cases(CASES[2:], recording, path, _measured)
    assert len(read(path).results) == len(finished.results) == 4
    with pytest.raises(KeyboardInterrupt):  # measured afresh, the old result stays until there is a new one
        run_cases(CASES, finished, path, _interrupted_at(CASES[0]))
    assert read(path) == finished


def test_a_killed_process_is_told_of_and_not_repeated_unasked(path):
    script = f"""
import os, signal
from pathlib import Path
from tests.course.bench.test_runner import CASES, NOTHING, _measured, run_cases
def measure(case):
    if case == CASES[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return _measured(case)
run_cases(CASES, NOTHING, Path({str(path)!r}), measure)
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == -signal.SIGKILL
    there, recording, words = resume(path.parent, SETUP, "small")
    assert there == path
    assert words.startswith("1 earlier results are kept. A fp16 eager: the process ended while this ran")
    assert recording.results[CASES[1].key].outcome == "interrupted"
    assert left(recording) == CASES[2:]
    assert left(recording, retry=True) == CASES[1:]
    assert left(recording, fresh=True) == CASES


def test_failures_are_retried_only_when_asked(path):
    outcomes = dict(zip(CASES, ["out of memory", "does not fit", "failed", "not supported"], strict=True))
    recording = run_cases(CASES, NOTHING, path, lambda case: _measured(case, outcomes[case]))
    assert left(recording) == []
    assert left(recording, retry=True) == CASES[:3]


def test_a_damaged_file_is_set_aside_and_named(path):
    path.write_text('{"format": 1, "resul')
    there, recording, words = resume(path.parent, SETUP, "small")
    assert (there, recording) == (path, NOTHING)
    assert f"{NAME} holds no readable results" in words
    (aside,) = were_set_aside(path)
    assert f"set aside as {aside.name}" in words
    assert aside.read_text() == '{"format": 1, "resul'
    assert not unreadable(path.parent)
    write(path, recording)
    assert read(path) == recording


def test_results_of_another_setup_are_left_alone_and_named_and_of_another_device_or_size_not(path):
    run_cases(CASES, NOTHING, path, _measured)
    before, folder = path.read_bytes(), path.parent
    now = replace(SETUP, threads=1, python="3.13.0")
    there, recording, words = resume(folder, now, "small")
    assert recording == Recording(now, "small")
    assert words == (
        f"Earlier results are of another setup and stay as they are: {NAME} "
        "(python 3.12.1, now 3.13.0; threads 16, now 1)."
    )
    run_cases(CASES[:1], recording, there, _measured)
    assert path.read_bytes() == before
    assert read(there).setup == now
    # Each goes on with its own.
    assert resume(folder, SETUP, "small")[::2] == (path, "4 earlier results are kept.")
    assert resume(folder, now, "small")[::2] == (there, "1 earlier results are kept.")
    assert resume(folder, replace(SETUP, device="NVIDIA H100"), "small")[2] == ""
    assert resume(folder, SETUP, "full")[2] == ""
