"""The command as a user types it."""

from __future__ import annotations

import argparse
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


def _run(*words):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_a_missing_library_is_named_with_its_cure(monkeypatch, tmp_path, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "transformers" else find(name, *a)
    )
    assert _run("--results", str(tmp_path)) == 1
    cure = "Install it: python -m pip install 'amp-lessons[models]'"
    assert capsys.readouterr().err == f"The models come from the library transformers. {cure}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named(tmp_path, capsys):
    pytest.importorskip("transformers")
    assert _run("--device", "cuda", "--results", str(tmp_path)) == 1
    assert "there is no cuda device here" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cpu:7", "cuda:99"])
def test_a_device_that_is_not_there_is_named(name, tmp_path, capsys):
    pytest.importorskip("transformers")
    assert _run("--device", name, "--results", str(tmp_path)) == 1
    assert "there is no c" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_help_says_what_small_is_and_what_is_done_unasked(capsys):
    with pytest.raises(SystemExit):
        _run("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "small: a few layers of the same kinds" in said
    assert f"of {', '.join(bench.benched())} (default: all)" in said
    assert "compiled: by torch.compile (default: both)" in said
    assert "(default: bench in the folder of your progress; --show names it)" in said


def test_no_results_to_show(tmp_path, capsys):
    assert _run("--show", "--results", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"There are no results in {tmp_path}.\n"


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(tmp_path, capsys):
    (tmp_path / "damaged.json").write_text('{"format": 1}')
    assert _run("--show", "--results", str(tmp_path)) == 0
    said = capsys.readouterr()
    assert said.out == f"There are no results in {tmp_path}.\n"
    assert said.err == f"{tmp_path / 'damaged.json'} holds no readable results ('results' is missing)\n"


@pytest.fixture
def tiny(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setitem(bench.WORKLOADS, "Tiny", TinyWorkload())


@pytest.mark.usefixtures("tiny")
def test_from_the_command_line_to_the_file_and_back(tmp_path, capsys):
    words = ("--device", "cpu", "--models", "Tiny", "--modes", "eager", "--results", str(tmp_path))
    assert _run(*words, "--precisions", "fp32", "tf32", "--seconds", "0.01") == 0
    said = capsys.readouterr().out
    (path,) = tmp_path.glob("*.json")
    recording = read(path)
    assert f"Kept in {path}." in said
    assert [result.outcome for result in recording.results.values()] == ["measured", "not supported"]
    assert recording.results["Tiny", "fp32", "eager"].peak_bytes > 0
    # A second run has nothing left to do.
    assert _run(*words, "--precisions", "fp32", "--seconds", "0.01") == 0
    assert "2 earlier results are kept." in capsys.readouterr().out
    assert read(path) == recording
    assert _run("--show", "--results", str(tmp_path)) == 0
    assert recording.provenance in capsys.readouterr().out


def test_one_workload_in_the_catalogue_is_enough_also_without_a_claim(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    gpt2 = bench.WORKLOADS["GPT-2"]
    config = {**gpt2.size("small").config, "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50}
    size = Size(2, 8, config)
    one_layer = replace(gpt2, name="One layer", sizes={"full": size, "small": size}, claim=None)
    assert "One layer" not in bench.benched()
    monkeypatch.setitem(bench.WORKLOADS, "One layer", one_layer)
    monkeypatch.setitem(calculator.SUBJECTS, "One layer", calculator.of_workload(one_layer))
    assert "One layer" in bench.benched()
    words = ("--device", "cpu", "--models", "One layer", "--modes", "eager", "--results", str(tmp_path))
    assert _run(*words, "--precisions", "fp32", "bf16", "--seconds", "0.01") == 0
    assert "One layer" in capsys.readouterr().out
    row = source_table("bf16", models=["One layer"], found=folders.recordings(tmp_path)).records[-1]
    assert (row["model"], row["speed claimed"], row["memory claimed"]) == (
        "One layer",
        "no claim",
        "no claim",
    )
    assert row["measured memory"].endswith("%")
    assert row["predicted"].endswith("%")


@pytest.mark.usefixtures("tiny")
def test_an_interruption_says_where_the_results_are(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.cases, "measure", interrupted)
    words = ("--device", "cpu", "--models", "Tiny", "--precisions", "fp32", "--results", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):  # which cli.main turns into an exit status
        _run(*words)
    assert "Interrupted. What was measured is kept in" in capsys.readouterr().out
    (path,) = tmp_path.glob("*.json")
    assert read(path).running is None


SHORT = (
    "--device",
    "cpu",
    "--models",
    "Tiny",
    "--modes",
    "eager",
    "--precisions",
    "fp32",
    "--seconds",
    "0.01",
)


@pytest.fixture
def shipped():
    """Return a recording of the course that the machine it was made on could go on with."""
    (path,) = folders.shipped_folder().glob("amd-epyc-torch-2.13.0-cpu-small.json")
    return path, path.read_bytes()


@pytest.mark.usefixtures("tiny")
def test_a_recording_of_the_course_is_not_taken_for_ones_own(shipped, monkeypatch, capsys):
    path, content = shipped
    monkeypatch.setattr(command.results, "this_setup", lambda _: read(path).setup)
    assert _run(*SHORT) == 0
    (own,) = folders.own_folder().glob("*.json")
    assert list(read(own).results) == [("Tiny", "fp32", "eager")]
    assert "earlier results" not in capsys.readouterr().out
    assert path.read_bytes() == content
    assert _run("--show") == 0
    said = capsys.readouterr().out
    assert said.index(f"Your own results, in {own.parent}:") < said.index(
        "Recordings that the course comes with"
    )


@pytest.mark.usefixtures("tiny")
def test_who_made_a_recording_goes_on_with_it_by_naming_its_folder(shipped, tmp_path, monkeypatch, capsys):
    path, content = shipped
    (tmp_path / path.name).write_bytes(content)
    monkeypatch.setattr(command.results, "this_setup", lambda _: read(path).setup)
    assert _run(*SHORT, "--results", str(tmp_path)) == 0
    assert "24 earlier results are kept." in capsys.readouterr().out
    assert len(read(tmp_path / path.name).results) == 25


@pytest.mark.usefixtures("tiny")
def test_nothing_left_to_measure_is_said(capsys):
    assert _run(*SHORT) == _run(*SHORT) == 0
    first, second = capsys.readouterr().out.split("Kept in")[:2]
    assert "nothing left to measure" not in first
    assert "1 earlier results are kept.\nThere is nothing left to measure" in second


@pytest.mark.usefixtures("tiny")
def test_a_second_run_at_once_is_refused_and_loses_nothing(monkeypatch, capsys):
    measure = command.cases.measure

    def start_another(*args, **options):
        monkeypatch.setattr(command.cases, "measure", measure)
        assert _run(*SHORT) == 1
        return measure(*args, **options)

    monkeypatch.setattr(command.cases, "measure", start_another)
    assert _run(*SHORT) == 0
    assert "Two at once would slow each other down" in capsys.readouterr().err
    (path,) = folders.own_folder().glob("*.json")
    assert [result.outcome for result in read(path).results.values()] == ["measured"]


@pytest.mark.usefixtures("tiny")
def test_a_folder_that_is_a_file_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert _run(*SHORT, "--results", str(tmp_path / "file")) == 1
    wanted = f"Results cannot be kept in {tmp_path / 'file'}: it is not a folder.\n"
    assert capsys.readouterr().err == wanted
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("tiny")
def test_a_full_disk_is_named(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert _run(*SHORT, "--results", str(tmp_path)) == 1
    assert f"Results cannot be kept in {tmp_path}: No space left on device." in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_trouble_with_the_folder_of_the_progress_is_told_in_words(monkeypatch, capsys):
    def refused():
        raise progress.ProgressError("AMP_LESSONS_HOME is odd")

    monkeypatch.setattr(progress, "home", refused)
    assert _run(*SHORT) == 1
    assert capsys.readouterr().err == "AMP_LESSONS_HOME is odd\n"
    assert _run("--show") == 0
    assert capsys.readouterr().out.startswith("You have no results: AMP_LESSONS_HOME is odd\n")


def test_nothing_of_ones_own_to_show_says_what_measures(capsys):
    assert _run("--show") == 0
    said = capsys.readouterr().out
    assert said.startswith(
        f"You have no results yet. `amp-lessons bench` measures, and keeps them in {folders.own_folder()}."
    )
    assert "Recordings that the course comes with" in said
