"""``amp-lessons bench``: from the command line to the file of results and back, and what it refuses."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from amp_lessons import bench
from amp_lessons.cli import bench as command
from amp_lessons.course import progress
from amp_lessons.course.bench import calculator, folders
from amp_lessons.course.bench.results import read
from amp_lessons.course.bench.workloads import Size
from amp_lessons.course.views import source_table
from tests.course.bench.tiny import TinyWorkload

pytestmark = pytest.mark.slow
SHORT = "bench --device cpu --models Tiny --modes eager --precisions fp32 --seconds 0.01"


@pytest.fixture
def tiny(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setitem(bench.WORKLOADS, "Tiny", TinyWorkload())


def test_a_missing_library_is_named_with_its_cure(monkeypatch, tmp_path, session):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "transformers" else find(name, *a)
    )
    cure = "Install it: python -m pip install 'amp-lessons[models]'"
    said = session(f"bench --results {tmp_path}")
    assert said.endswith(f"\nThe models come from the library transformers. {cure}\n=> 1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["cpu:7", "cuda:99", *(() if torch.cuda.is_available() else ("cuda",))])
def test_a_device_that_is_not_there_is_named(name, tmp_path, session):
    pytest.importorskip("transformers")
    said = session(f"bench --device {name} --results {tmp_path}")
    assert "there is no c" in said
    assert said.endswith("=> 1")
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_small_is_and_what_is_done_unasked(session):
    said = " ".join(session("bench --help").split())
    assert "small: a few layers of the same kinds" in said
    assert f"of {', '.join(bench.benched())} (default: all)" in said
    assert "compiled: by torch.compile (default: both)" in said
    assert "(default: bench in the folder of your progress; --show names it)" in said


def test_where_there_are_no_results_that_is_said_and_what_cannot_be_read_is_named(tmp_path, session):
    nothing = "There are no results in HERE.\n"
    assert session(f"bench --show --results {tmp_path}").endswith(f"\n{nothing}=> 0")
    (tmp_path / "damaged.json").write_text('{"format": 1}')
    unreadable = "HERE/damaged.json holds no readable results ('results' is missing)\n"
    assert session(f"bench --show --results {tmp_path}").endswith(f"\n{nothing}{unreadable}=> 0")
    said = session("bench --show")
    kept = f"keeps them in {folders.own_folder()}.".replace(str(tmp_path), "HERE")
    assert f"\nYou have no results yet. `amp-lessons bench` measures, and {kept}" in said
    assert "Recordings that the course comes with" in said


@pytest.mark.usefixtures("tiny")
def test_from_the_command_line_to_the_file_and_back(tmp_path, session):
    said = session(f"{SHORT} tf32 --results {tmp_path}".replace("fp32 --seconds 0.01 tf32", "fp32 tf32"))
    (path,) = tmp_path.glob("*.json")
    recording = read(path)
    assert f"Kept in HERE/{path.name}.\n" in said
    assert [result.outcome for result in recording.results.values()] == ["measured", "not supported"]
    assert recording.results["Tiny", "fp32", "eager"].peak_bytes > 0
    assert "nothing left to measure" not in said
    again = session(f"{SHORT} --results {tmp_path}")
    assert "2 earlier results are kept.\nThere is nothing left to measure" in again
    assert read(path) == recording
    assert recording.provenance in session(f"bench --show --results {tmp_path}")


def test_one_workload_in_the_catalogue_is_enough_also_without_a_claim(tmp_path, monkeypatch, session):
    pytest.importorskip("transformers")
    gpt2 = bench.WORKLOADS["GPT-2"]
    config = {**gpt2.size("small").config, "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    size = Size(2, 8, config)
    layer = replace(gpt2, name="Layer", sizes={"full": size, "small": size}, claim=None)
    assert "Layer" not in bench.benched()
    monkeypatch.setitem(bench.WORKLOADS, "Layer", layer)
    monkeypatch.setitem(calculator.SUBJECTS, "Layer", calculator.of_workload(layer))
    assert "Layer" in bench.benched()
    said = session(f"{SHORT} --results {tmp_path} --precisions fp32 bf16".replace("Tiny", "Layer"))
    assert said.endswith("=> 0")
    row = source_table("bf16", models=["Layer"], found=folders.recordings(tmp_path)).records[-1]
    assert row["model"] == "Layer"
    assert row["speed claimed"] == row["memory claimed"] == "no claim"
    assert row["measured memory"].endswith("%")
    assert row["predicted"].endswith("%")


@pytest.mark.usefixtures("tiny")
def test_an_interruption_says_where_the_results_are(tmp_path, monkeypatch, session):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("signal.signal", lambda *_: None)  # which lets a second Ctrl-C end Python at once
    monkeypatch.setattr(command.cases, "measure", interrupted)
    said = session(f"{SHORT} --results {tmp_path}")
    assert "Interrupted. What was measured is kept in" in said
    assert said.endswith("=> 130")
    (path,) = tmp_path.glob("*.json")
    assert read(path).running is None


@pytest.fixture
def shipped(monkeypatch):
    """Return a recording of the course, as if made on this machine, which could go on with it."""
    (path,) = folders.shipped_folder().glob("amd-epyc-torch-2.13.0-cpu-small.json")
    monkeypatch.setattr(command.results, "this_setup", lambda _: read(path).setup)
    return path


@pytest.mark.usefixtures("tiny")
def test_a_recording_of_the_course_is_gone_on_with_only_where_its_folder_is_named(shipped, tmp_path, session):
    content = shipped.read_bytes()
    (tmp_path / shipped.name).write_bytes(content)
    assert "earlier results" not in session(SHORT)
    (own,) = folders.own_folder().glob("*.json")
    assert list(read(own).results) == [("Tiny", "fp32", "eager")]
    assert shipped.read_bytes() == content
    shown = session("bench --show")
    ours = shown.index("Your own results, in HERE/progress/bench:")
    assert ours < shown.index("Recordings that the course comes with")
    assert "24 earlier results are kept." in session(f"{SHORT} --results {tmp_path}")
    assert len(read(tmp_path / shipped.name).results) == 25


@pytest.mark.usefixtures("tiny")
def test_a_second_run_at_once_is_refused_and_loses_nothing(monkeypatch, session):
    measure = command.cases.measure

    def start_another(*args, **options):
        monkeypatch.setattr(command.cases, "measure", measure)
        said = session(SHORT)
        assert "Two at once would slow each other down" in said
        assert said.endswith("=> 1")
        return measure(*args, **options)

    monkeypatch.setattr(command.cases, "measure", start_another)
    assert session(SHORT).endswith("=> 0")
    (path,) = folders.own_folder().glob("*.json")
    assert [result.outcome for result in read(path).results.values()] == ["measured"]


@pytest.mark.usefixtures("tiny")
def test_trouble_with_a_folder_is_told_in_words(tmp_path, monkeypatch, session):
    def full(*_):
        raise OSError(28, "No space left on device")

    def refused():
        raise progress.ProgressError("AMP_LESSONS_HOME is odd")

    (tmp_path / "file").write_text("mine")
    said = session(f"{SHORT} --results {tmp_path / 'file'}")
    assert said.endswith("\nResults cannot be kept in HERE/file: it is not a folder.\n=> 1")
    assert (tmp_path / "file").read_text() == "mine"
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        said = session(f"{SHORT} --results {tmp_path}")
    assert "Results cannot be kept in HERE: No space left on device." in said
    assert said.endswith("=> 1")
    monkeypatch.setattr(progress, "home", refused)
    assert session(SHORT).endswith("\nAMP_LESSONS_HOME is odd\n=> 1")
    assert "\nYou have no results: AMP_LESSONS_HOME is odd\n" in session("bench --show")
