"""What ``amp-lessons explain`` prints, and its exit status."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch

from amp_lessons.cli import cli


def test_the_code_of_a_finding_is_explained(capsys):
    assert cli.main(["explain", "clip_before_unscale"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("clip_before_unscale: ")
    assert "cure: call scaler.unscale_(optimizer) before you clip" in printed
    assert "lesson: 04 explains it" in printed


def test_a_finding_that_only_a_check_can_see_says_why(capsys):
    assert cli.main(["explain", "wrong_autocast_dtype"]) == 0
    assert "an audit does not: an audit gives it by another code" in capsys.readouterr().out


def test_the_code_of_a_single_exercise_is_explained_by_its_report(capsys):
    assert cli.main(["explain", "other_labels"]) == 0
    assert "a code of an exercise's check; its report says" in capsys.readouterr().out
    assert cli.main(["explain", "two_optimizers"]) == 1


def refused() -> str:
    """Have PyTorch refuse a product of two dtypes; return what it says."""
    with pytest.raises(RuntimeError) as error:
        torch.nn.Linear(2, 2)(torch.ones(1, 2, dtype=torch.float16))
    return str(error.value)


def test_what_pytorch_says_is_explained_in_one_argument_or_unquoted(capsys):
    assert cli.main(["explain", refused()]) == 0
    quoted = capsys.readouterr().out
    assert "lesson: 02 explains it" in quoted
    assert cli.main(["explain", *refused().split(" ")]) == 0
    assert capsys.readouterr().out == quoted


def test_a_whole_traceback_is_read_from_standard_input(capsys, monkeypatch):
    traceback = f'Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: {refused()}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(traceback))
    assert cli.main(["explain", "-"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("RuntimeError: ")
    assert "cure:" in printed


def test_what_is_not_known_says_how_to_go_on(capsys):
    assert cli.main(["explain", "the printer is on fire"]) == 1
    assert "enabled=False" in capsys.readouterr().out


def test_a_code_is_explained_without_pytorch():
    source = (
        "import sys; from amp_lessons.cli import cli\n"
        "cli.main(['explain', 'no_autocast']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=60).returncode == 0
