"""A benchmark that is interrupted, killed, resumed, or finds a damaged file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from amp_lessons._base.files import were_set_aside
from amp_lessons.course.bench.cases import BenchCase, all_cases
from amp_lessons.course.bench.folders import file_name, unreadable
from amp_lessons.course.bench.results import Recording, Result, read, write
from amp_lessons.course.bench.runner import outstanding, resume, run_cases
from tests.course.bench.test_results import SETUP

NAME = file_name(SETUP, "small")
CASES = all_cases(["A", "B"], ["fp32", "fp16"], ["eager"], "small")


def _measured(case: BenchCase, outcome: str = "measured") -> Result:
    return Result(*case.key, outcome, 1, "2026-03-01T10:00:00+00:00", samples_ms=(1.0, 1.1))  # type: ignore[arg-type]


def test_all_cases_are_measured_in_order_and_kept(tmp_path: Path) -> None:
    path = tmp_path / NAME
    recording = run_cases(CASES, Recording(SETUP, "small"), path, _measured)
    assert list(recording.results) == [case.key for case in CASES]
    assert read(path) == recording


def test_each_result_is_on_disk_before_the_next_case_starts(tmp_path: Path) -> None:
    path, seen = tmp_path / NAME, []

    def measure(case: BenchCase) -> Result:
        on_disk = read(path)
        seen.append((len(on_disk.results), on_disk.running))
        return _measured(case)

    run_cases(CASES, Recording(SETUP, "small"), path, measure)
    assert seen == [(i, case.key) for i, case in enumerate(CASES)]


def test_an_interrupted_run_keeps_what_it_has_and_goes_on_from_there(tmp_path: Path) -> None:
    path = tmp_path / NAME

    def interrupted(case: BenchCase) -> Result:
        if case == CASES[2]:
            raise KeyboardInterrupt
        return _measured(case)

    with pytest.raises(KeyboardInterrupt):
        run_cases(CASES, Recording(SETUP, "small"), path, interrupted)
    there, recording, words = resume(tmp_path, SETUP, "small")
    assert there == path
    assert words == "2 earlier results are kept."
    assert outstanding(CASES, recording, fresh=False, retry=False) == CASES[2:]
    finished = run_cases(CASES[2:], recording, path, _measured)
    assert len(read(path).results) == len(finished.results) == 4


def test_a_killed_process_is_told_of_and_not_repeated_unasked(tmp_path: Path) -> None:
    path = tmp_path / NAME
    script = f"""
import os, signal
from pathlib import Path
from tests.course.bench.test_runner import CASES, SETUP, Recording, _measured, run_cases
def measure(case):
    if case == CASES[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    return _measured(case)
run_cases(CASES, Recording(SETUP, "small"), Path({str(path)!r}), measure)
"""
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert done.returncode == -signal.SIGKILL
    there, recording, words = resume(tmp_path, SETUP, "small")
    assert there == path
    assert words.startswith("1 earlier results are kept. A fp16 eager: the process ended while this ran")
    assert recording.results[CASES[1].key].outcome == "interrupted"
    assert outstanding(CASES, recording, fresh=False, retry=False) == CASES[2:]
    assert outstanding(CASES, recording, fresh=False, retry=True) == CASES[1:]
    assert outstanding(CASES, recording, fresh=True, retry=False) == CASES


def test_failures_are_retried_only_when_asked(tmp_path: Path) -> None:
    outcomes = dict(zip(CASES, ["out of memory", "does not fit", "failed", "not supported"], strict=True))
    recording = run_cases(
        CASES, Recording(SETUP, "small"), tmp_path / NAME, lambda case: _measured(case, outcomes[case])
    )
    assert outstanding(CASES, recording, fresh=False, retry=False) == []
    assert outstanding(CASES, recording, fresh=False, retry=True) == CASES[:3]


def test_measuring_afresh_keeps_the_old_result_until_there_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / NAME
    recording = run_cases(CASES, Recording(SETUP, "small"), path, _measured)

    def fail(case: BenchCase) -> Result:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cases(CASES, recording, path, fail)
    assert read(path) == recording


def test_a_damaged_file_is_set_aside_and_named(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text('{"format": 1, "resul')
    there, recording, words = resume(tmp_path, SETUP, "small")
    assert there == path
    assert recording == Recording(SETUP, "small")
    assert f"{NAME} holds no readable results" in words
    (aside,) = were_set_aside(path)
    assert f"set aside as {aside.name}" in words
    assert aside.read_text() == '{"format": 1, "resul'
    assert not unreadable(tmp_path)
    write(path, recording)
    assert read(path) == recording


def test_results_of_another_setup_are_left_alone_and_named(tmp_path: Path) -> None:
    path = tmp_path / NAME
    run_cases(CASES, Recording(SETUP, "small"), path, _measured)
    before = path.read_bytes()
    now = replace(SETUP, threads=1, python="3.13.0")
    there, recording, words = resume(tmp_path, now, "small")
    assert recording == Recording(now, "small")
    assert words == (
        f"Earlier results are of another setup and stay as they are: {NAME} "
        "(python 3.12.1, now 3.13.0; threads 16, now 1)."
    )
    run_cases(CASES[:1], recording, there, _measured)
    assert path.read_bytes() == before
    assert read(there).setup == now
    # Each goes on with its own.
    assert resume(tmp_path, SETUP, "small")[::2] == (path, "4 earlier results are kept.")
    assert resume(tmp_path, now, "small")[::2] == (there, "1 earlier results are kept.")


def test_another_device_or_size_is_not_worth_a_word(tmp_path: Path) -> None:
    run_cases(CASES, Recording(SETUP, "small"), tmp_path / NAME, _measured)
    assert resume(tmp_path, replace(SETUP, device="NVIDIA H100"), "small")[2] == ""
    assert resume(tmp_path, SETUP, "full")[2] == ""
