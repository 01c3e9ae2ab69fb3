"""Results on disk: what is written comes back, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amp_lessons.course.bench.folders import recordings
from amp_lessons.course.bench.results import (
    Recording,
    Result,
    Setup,
    UnreadableResultsError,
    UnwritableResultsError,
    read,
    set_aside,
    table,
    write,
)

SETUP = Setup("NVIDIA H200", "cuda", "2.11.0+cu130", "CUDA 13.0", "3.12.1", "5.0.0", "Xeon", 16)


def _result(precision: str = "fp32", mode: Any = "eager", ms: float = 10.0, **fields: Any) -> Result:
    samples = tuple(ms * (1 + 0.001 * i) for i in range(24))
    defaults = {"samples_ms": samples, "first_call_ms": 99.0, "peak_bytes": 1000, "predicted_bytes": 990}
    return Result(
        "GPT-2", precision, mode, "measured", 8, "2026-03-01T10:00:00+00:00", **{**defaults, **fields}
    )


def _recording(*found: Result, setup: Setup = SETUP) -> Recording:
    recording = Recording(setup, "full")
    for result in found:
        recording = recording.with_result(result)
    return recording


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    failed = Result("GPT-2", "fp16", "compiled", "failed", 0, "2026-03-02T10:00:00+00:00", "no compiler")
    recording = replace(_recording(_result(), failed), running=("GPT-2", "bf16", "eager"))
    write(tmp_path / "new" / "r.json", recording)
    assert read(tmp_path / "new" / "r.json") == recording
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["r.json"]


def test_the_label_names_device_date_and_version() -> None:
    one = _recording(_result())
    assert one.provenance == "recorded on NVIDIA H200, 2026-03-01, torch 2.11.0+cu130"
    later = replace(_result("fp16"), measured_at="2026-03-03T01:00:00+00:00")
    assert one.with_result(later).date == "2026-03-01 to 2026-03-03"
    assert _recording().date == "no results yet"


def test_speedup_and_saving_are_against_eager_fp32() -> None:
    recording = _recording(
        _result(),
        _result("fp16", ms=5.0, peak_bytes=600),
        _result("fp16", "compiled", ms=2.5, peak_bytes=None),
    )
    eager = recording.speedup("GPT-2", "fp16")
    assert eager is not None
    assert (eager.verdict, eager.speedup) == ("faster", pytest.approx(2.0))
    compiled = recording.speedup("GPT-2", "fp16", "compiled")
    assert compiled is not None
    assert compiled.speedup == pytest.approx(4.0)
    assert recording.memory_saving("GPT-2", "fp16") == pytest.approx(0.4)
    assert recording.memory_saving("GPT-2", "fp16", "compiled") is None
    assert recording.speedup("GPT-2", "bf16") is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    write(path, _recording(_result()))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UnwritableResultsError, match=f"cannot be kept in {tmp_path}: disk full"):
        write(path, _recording(_result(), _result("fp16")))
    assert read(path) == _recording(_result())
    assert list(tmp_path.iterdir()) == [path]


SETUP_DAMAGE = ({"threads": "16"}, {"device": None}, {"torch": 2.11}, {"threads": True})
RESULT_DAMAGE = (
    {"samples_ms": ["x"]},
    {"samples_ms": [1.0]},
    {"samples_ms": [1.0, -1.0]},
    {"samples_ms": [1.0, float("nan")]},
    {"samples_ms": 7},
    {"first_call_ms": "99"},
    {"peak_bytes": "much"},
    {"batch": None},
    {"measured_at": 20260301},
    {"message": ["no"]},
    {"mode": "fast"},
    {"outcome": "well"},
)


def _with(fields: dict[str, Any]) -> Any:
    return lambda text: json.dumps({**json.loads(text), "setup": {**json.loads(text)["setup"], **fields}})


def _with_result(fields: dict[str, Any]) -> Any:
    return lambda text: json.dumps(
        {**json.loads(text), "results": [{**json.loads(text)["results"][0], **fields}]}
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: json.dumps([1, 2]),
        lambda text: text.replace('"format": 1', '"format": 99'),
        lambda text: text.replace('"outcome"', '"outcom"'),
        lambda text: "[" * 200_000,
        *map(_with, SETUP_DAMAGE),
        *map(_with_result, RESULT_DAMAGE),
        lambda text: text.replace('"running": null', '"running": ["GPT-2", 1, "eager"]'),
        lambda text: text.replace('"running": null', '"running": ["GPT-2", "fp16", "fast"]'),
        lambda text: text.replace('"running": null', '"running": "abc"'),
        lambda text: text.replace('"results": [', '"results": [7, '),
    ],
)
def test_damaged_files_are_named_set_aside_and_passed_over(tmp_path: Path, damage: Any) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    write(good, _recording(_result()))
    bad.write_text(damage(good.read_text()))
    with pytest.raises(UnreadableResultsError, match=r"bad\.json"):
        read(bad)
    assert recordings(tmp_path) == (_recording(_result()),)
    before = bad.read_text()
    first = set_aside(bad)
    bad.write_text("again")
    second = set_aside(bad)
    assert (first.read_text(), second.read_text()) == (before, "again")
    assert not bad.exists()


def test_the_table_says_what_was_measured_and_what_not() -> None:
    failed = Result(
        "GPT-2", "bf16", "eager", "out of memory", 8, "2026-03-01T10:00:00+00:00", "CUDA out of memory."
    )
    text = table(_recording(_result(), _result("fp16", ms=5.0, peak_bytes=600 * 2**20), failed))
    lines = text.splitlines()
    assert lines[0] == "recorded on NVIDIA H200, 2026-03-01, torch 2.11.0+cu130 (full size)"
    assert lines[1] == "Python 3.12.1, transformers 5.0.0, CUDA 13.0, Xeon, threads: 16"
    assert "2.00x as fast" in next(line for line in lines if "fp16" in line)
    assert "600 MiB" in text
    assert lines[-1] == "GPT-2 bf16 eager: out of memory. CUDA out of memory."


def test_the_table_of_the_small_size_says_that_these_are_not_the_published_models() -> None:
    small = replace(_recording(_result()), preset="small")
    assert "not the published models" in table(small)
    assert "not the published models" not in table(_recording(_result()))
