"""Results on disk: what is written comes back, and nothing that was there is lost."""

from __future__ import annotations

import json
import os
from dataclasses import replace

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
AT = "2026-03-01T10:00:00+00:00"


def _result(precision="fp32", mode="eager", ms=10.0, **fields):
    samples = tuple(ms * (1 + 0.001 * i) for i in range(24))
    defaults = {"samples_ms": samples, "first_call_ms": 99.0, "peak_bytes": 1000, "predicted_bytes": 990}
    return Result("GPT-2", precision, mode, "measured", 8, AT, **{**defaults, **fields})


def _recording(*found, setup=SETUP):
    return Recording(setup, "full", {result.key: result for result in found})


def test_what_is_written_comes_back(tmp_path):
    failed = Result("GPT-2", "fp16", "compiled", "failed", 0, AT, "no compiler")
    recording = replace(_recording(_result(), failed), running=("GPT-2", "bf16", "eager"))
    write(tmp_path / "new" / "r.json", recording)
    assert read(tmp_path / "new" / "r.json") == recording
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["r.json"]


def test_the_label_names_device_date_and_version():
    one = _recording(_result())
    assert one.provenance == "recorded on NVIDIA H200, 2026-03-01, torch 2.11.0+cu130"
    later = replace(_result("fp16"), measured_at="2026-03-03T01:00:00+00:00")
    assert one.with_result(later).date == "2026-03-01 to 2026-03-03"
    assert _recording().date == "no results yet"


def test_speedup_and_saving_are_against_eager_fp32():
    compiled = _result("fp16", "compiled", ms=2.5, peak_bytes=None)
    recording = _recording(_result(), _result("fp16", ms=5.0, peak_bytes=600), compiled)
    of_modes = [recording.speedup("GPT-2", "fp16", mode) for mode in ("eager", "compiled")]
    assert [each.speedup for each in of_modes] == pytest.approx([2.0, 4.0])
    assert of_modes[0].verdict == "faster"
    assert recording.memory_saving("GPT-2", "fp16") == pytest.approx(0.4)
    assert recording.memory_saving("GPT-2", "fp16", "compiled") is None
    assert recording.speedup("GPT-2", "bf16") is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    write(path, _recording(_result()))

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UnwritableResultsError, match=f"cannot be kept in {tmp_path}: disk full"):
        write(path, _recording(_result(), _result("fp16")))
    assert read(path) == _recording(_result())
    assert list(tmp_path.iterdir()) == [path]


# Fields of the whole, of the setup and of a result, as no version can have written them.
DAMAGES = [
    *(("", fields) for fields in ({"format": 99}, {"results": [7]}, {"running": "abc"})),
    *(("", {"running": ["GPT-2", *words]}) for words in ((1, "eager"), ("fp16", "fast"))),
    *(("setup", fields) for fields in ({"device": None}, {"torch": 2.11}, {"threads": True})),
    *(("result", {"samples_ms": found}) for found in (["x"], [1.0], [1.0, -1.0], [1.0, float("nan")], 7)),
    *(("result", fields) for fields in ({"first_call_ms": "99"}, {"peak_bytes": "much"}, {"batch": None})),
    *(
        ("result", fields)
        for fields in ({"measured_at": 20260301}, {"message": ["no"]}, {"outcom": "measured"})
    ),
    *(("result", fields) for fields in ({"mode": "fast"}, {"outcome": "well"})),
]


def _damaged(text, part, fields):
    content = json.loads(text)
    {"": content, "setup": content["setup"], "result": content["results"][0]}[part].update(fields)
    return json.dumps(content)


@pytest.mark.parametrize(
    "damage", [*DAMAGES, "", '{"format": 1, "resul', "[1, 2]", "[" * 200_000], ids=lambda each: f"{each}"[:40]
)
def test_damaged_files_are_named_set_aside_and_passed_over(tmp_path, damage):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    write(good, _recording(_result()))
    bad.write_text(damage if isinstance(damage, str) else _damaged(good.read_text(), *damage))
    with pytest.raises(UnreadableResultsError, match=r"bad\.json"):
        read(bad)
    assert recordings(tmp_path) == (_recording(_result()),)
    before = bad.read_text()
    first = set_aside(bad)
    bad.write_text("again")
    second = set_aside(bad)
    assert (first.read_text(), second.read_text()) == (before, "again")
    assert not bad.exists()


def test_the_table_says_what_was_measured_and_what_not_and_of_which_models():
    failed = Result("GPT-2", "bf16", "eager", "out of memory", 8, AT, "CUDA out of memory.")
    recording = _recording(_result(), _result("fp16", ms=5.0, peak_bytes=600 * 2**20), failed)
    lines = table(recording).splitlines()
    assert lines[:2] == [
        "recorded on NVIDIA H200, 2026-03-01, torch 2.11.0+cu130 (full size)",
        "Python 3.12.1, transformers 5.0.0, CUDA 13.0, Xeon, threads: 16",
    ]
    (fp16,) = (line for line in lines if "fp16" in line)
    assert "2.00x as fast" in fp16
    assert "600 MiB" in fp16
    assert lines[-1] == "GPT-2 bf16 eager: out of memory. CUDA out of memory."
    assert "not the published models" in table(replace(recording, preset="small"))
