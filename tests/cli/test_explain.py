"""What ``amp-lessons explain`` prints, and its exit status."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch


def test_codes_and_what_is_not_known(session, golden):
    """A code of a finding, one that only a check can see, one of a single exercise, an exercise; no code."""
    codes = ("clip_before_unscale", "wrong_autocast_dtype", "other_labels", "two_optimizers")
    golden("explain.txt", session(*(f"explain {each}" for each in (*codes, "the printer is on fire"))))


def test_what_pytorch_says_is_explained_quoted_or_not_and_in_its_whole_traceback(session, monkeypatch):
    with pytest.raises(RuntimeError) as error:
        torch.nn.Linear(2, 2)(torch.ones(1, 2, dtype=torch.float16))
    _, _, quoted = session(f"explain '{error.value}'").partition("\n")
    assert "lesson: 02 explains it" in quoted
    assert quoted.endswith("=> 0")
    assert session(f"explain {error.value}").endswith(quoted)
    traceback = f'Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: {error.value}\n'
    monkeypatch.setattr(sys, "stdin", io.StringIO(traceback))
    assert session("explain -").endswith(f"\nRuntimeError: {quoted}")


def test_a_code_is_explained_without_pytorch():
    source = (
        "import sys; from amp_lessons.cli import cli\n"
        "cli.main(['explain', 'no_autocast']); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, timeout=60).returncode == 0
