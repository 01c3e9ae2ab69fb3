"""The command as a user types it."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from amp_lessons import bench
from amp_lessons.bench.results import read
from amp_lessons.commands import bench as command
from tests.bench.tiny import TinyWorkload


def _run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(words))


def test_a_missing_library_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "transformers" else find(name, *a)
    )
    assert _run("--results", str(tmp_path)) == 1
    cure = "Install it: python -m pip install 'amp-lessons[models]'"
    assert capsys.readouterr().err == f"The models come from the library transformers. {cure}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    assert _run("--device", "cuda", "--results", str(tmp_path)) == 1
    assert "there is no cuda device here" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--models", "VGG"), ("--precisions", "fp64"), ("--modes", "fast")])
def test_unknown_names_are_answered_with_those_there_are(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _run(*words)
    assert "choose from" in capsys.readouterr().err


def test_no_results_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("--show", "--results", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"There are no results in {tmp_path}.\n"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    for catalogue in (bench.WORKLOADS, bench.SOURCE_MODELS):
        monkeypatch.setitem(catalogue, "Tiny", TinyWorkload())


@pytest.mark.usefixtures("tiny")
def test_from_the_command_line_to_the_file_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--device", "cpu", "--models", "Tiny", "--modes", "eager", "--results", str(tmp_path))
    assert _run(*words, "--precisions", "fp32", "tf32", "--seconds", "0.01") == 0
    said = capsys.readouterr().out
    (path,) = tmp_path.iterdir()
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


@pytest.mark.usefixtures("tiny")
def test_an_interruption_says_where_the_results_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command.cases, "measure", interrupted)
    words = ("--device", "cpu", "--models", "Tiny", "--precisions", "fp32", "--results", str(tmp_path))
    assert _run(*words) == 130
    assert "Interrupted. What was measured is kept in" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert read(path).running is None
