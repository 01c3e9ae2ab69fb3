"""``amp-lessons compare``, with scripts as people write them. A script that imports PyTorch costs seconds."""

from __future__ import annotations

import json
import re

import pytest

from amp_lessons.cli import cli

TRAINING = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
eps = float(sys.argv[sys.argv.index("--eps") + 1]) if "--eps" in sys.argv else 1e-5
layers = nn.Linear(16, 32), nn.LayerNorm(32, eps=eps), nn.GELU(), nn.Dropout(0.0), nn.Linear(32, 4)
model = nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    inputs, targets = torch.randn(8, 16), torch.randint(4, (8,))
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("ended", sys.argv[1:], loss.dtype)
"""


pytestmark = pytest.mark.timeout(600)  # each run of a script loads PyTorch in a process of its own


@pytest.fixture
def compared(tmp_path, monkeypatch, capfd):
    """Run the command in a folder with a script, and return its status and what it, and scripts, printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(TRAINING)

    def run(*arguments):
        status = cli.main(["compare", *arguments])
        return status, *capfd.readouterr()

    return run


@pytest.mark.slow
def test_a_difference_is_named_and_the_recordings_can_stand_for_the_scripts(compared, tmp_path):
    options = ("--steps=3", "--record=kept", "--json=c.json", "--html=c.html")
    status, out, err = compared("train.py", "--against-args=--eps 1e-3", *options)
    assert status == 1, err
    assert "The two runs part in `1`, by more than its format explains." in out
    assert "`1` is made otherwise" in out
    assert "Warning" not in err
    assert "ended" not in out  # three steps, and no more
    written = json.loads((tmp_path / "c.json").read_text())
    assert (written["as_explained"], written["first"]["module"]) == (False, "1")
    assert written["first"]["phase"] == "forward"
    assert len(written["by_step"]) == 4
    assert (tmp_path / "c.html").read_text().count("<img") == 2

    files = ("kept/first.json", "kept/second.json")
    again = compared(*files, "--noise=kept/nudged.json")
    assert again[:2] == (1, out)
    status, out, _ = compared(*files)
    assert status == 1
    assert "Without a nudged run" in " ".join(out.split())


@pytest.mark.thorough
@pytest.mark.slow
def test_bf16_against_fp32_is_as_the_format_explains_and_the_lines_fit_a_terminal(compared):
    status, out, err = compared("train.py", "--precision=fp32", "--against=bf16", "--", "--some", "arguments")
    assert status == 0, err
    assert out.count("ended ['--some', 'arguments'] torch.float32") == 2  # the nudged run ends before
    said = out[out.index("The two runs part") :]
    assert "part no further than their formats explain" in said
    assert re.search(r"0 +fp32/bf16 +0\.00\d+", said)
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.slow
@pytest.mark.thorough
def test_a_script_that_draws_anew_each_time_is_told_so(compared, tmp_path):
    (tmp_path / "unseeded.py").write_text(TRAINING.replace("torch.manual_seed(0)", ""))
    status, out, _ = compared("unseeded.py", "--steps=2")
    assert status == 2
    assert "does not repeat itself" in " ".join(out.split())


@pytest.mark.slow
@pytest.mark.thorough
def test_a_script_that_fails_at_the_end_has_the_same_recording_and_its_traceback(compared, tmp_path):
    (tmp_path / "fails.py").write_text(TRAINING + "\nraise ValueError('at the end')")
    status, out, err = compared("train.py", "fails.py", "--no-noise")
    assert status == 0
    assert "ValueError: at the end" in err
    assert "The two runs are the same, as far as they were recorded." in out
    assert "The second run ended by ValueError: at the end." in out


def test_a_script_without_pytorch_is_answered_in_a_sentence(compared, tmp_path):
    (tmp_path / "nothing.py").write_text("print('no PyTorch')")
    status, out, err = compared("nothing.py", "train.py")
    assert (status, out) == (2, "no PyTorch\n")
    assert "before it had imported PyTorch" in err
