"""``amp-lessons compare``, with scripts as people write them. A script that imports PyTorch costs seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from amp_lessons.commands import cli

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


def compared(folder, *arguments):
    command = [sys.executable, "-m", "amp_lessons", "compare", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


@pytest.mark.slow
def test_a_difference_is_named_and_the_recordings_can_stand_for_the_scripts(script):
    done = compared(
        script,
        *("train.py", "--against-args=--eps 1e-3", "--steps=3"),
        *("--record=kept", "--json=c.json", "--html=c.html"),
    )
    assert done.returncode == 1, done.stderr
    assert "The two runs part in `1`, by more than its format explains." in done.stdout
    assert "`1` is made otherwise" in done.stdout
    assert "RuntimeWarning" not in done.stderr
    assert "ended" not in done.stdout  # three steps, and no more
    written = json.loads((script / "c.json").read_text())
    assert (written["as_explained"], written["first"]["module"]) == (False, "1")
    assert written["first"]["phase"] == "forward"
    assert len(written["by_step"]) == 4
    page = (script / "c.html").read_text()
    assert page.count("<img") == 2
    assert "More than its format explains".lower() in page.lower()

    files = ("kept/first.json", "kept/second.json", "--noise=kept/nudged.json")
    again = compared(script, *files)
    assert again.returncode == 1
    assert again.stdout == done.stdout
    alone = compared(script, *files[:2])
    assert "Without a nudged run" in " ".join(alone.stdout.split())
    assert alone.returncode == 1


@pytest.mark.slow
def test_bf16_against_fp32_is_as_the_format_explains_and_the_lines_fit_a_terminal(script):
    done = compared(script, "train.py", "--precision=fp32", "--against=bf16", "--", "--some", "arguments")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended ['--some', 'arguments'] torch.float32") == 3
    said = done.stdout[done.stdout.index("The two runs part") :]
    assert "part no further than their formats explain" in said
    assert re.search(r"0 +fp32/bf16 +0\.00\d+", said)
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.slow
def test_the_same_script_twice_is_the_same_and_one_that_draws_anew_is_told_so(script):
    done = compared(script, "train.py", "--no-noise", "--steps=2")
    assert done.returncode == 0
    assert "The two runs are the same, as far as they were recorded." in done.stdout
    (script / "unseeded.py").write_text(TRAINING.replace("torch.manual_seed(0)", ""))
    done = compared(script, "unseeded.py", "--steps=2")
    assert done.returncode == 2
    assert "does not repeat itself" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_scripts_that_fail_or_record_nothing_are_answered_in_a_sentence(script):
    (script / "fails.py").write_text(TRAINING + "\nraise ValueError('at the end')")
    done = compared(script, "train.py", "fails.py", "--no-noise")
    assert done.returncode == 0
    assert "ValueError: at the end" in done.stderr
    assert "The second run ended by ValueError: at the end." in done.stdout
    (script / "nothing.py").write_text("print('no PyTorch')")
    done = compared(script, "nothing.py", "train.py")
    assert done.returncode == 2
    assert "before it had imported PyTorch" in done.stderr
    (script / "broken.json").write_text("{")
    done = compared(script, "broken.json", "broken.json")
    assert done.returncode == 2
    assert "broken.json: this is no recording" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["missing.py"], "there is no file missing.py"),
        (["a.ipynb"], "with audit.recording(model)"),
        (["s.py", "missing.py"], "there is no file missing.py"),
        (["s.py", "--precision", "fp8"], "invalid choice"),
        (["s.py", "--steps", "0"], "not a whole number of at least 1"),
        (["s.py", "--lr", "0.1"], "go behind --"),
        (["r.json", "s.py", "--precision", "bf16"], "r.json is a recording"),
        (["s.py", "--noise", "s.py"], "s.py is no recording"),
        (["s.py", "--html", "."], "cannot be written"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_runs(tmp_path, monkeypatch, capsys, arguments, answer):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("raise SystemError('it ran')")
    (tmp_path / "r.json").write_text("{}")
    try:
        status = cli.main(["compare", *arguments])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    printed = capsys.readouterr()
    assert answer in printed.err
    assert printed.out == ""
