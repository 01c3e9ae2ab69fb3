"""``amp-lessons audit --try``: what a planted fault costs is found, and a healthy run has nothing to gain.

Every run is a process that imports PyTorch, which takes seconds; a test has four to seven.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from amp_lessons.cli import cli

HEAD = """
import torch
from torch import nn

class Spread(nn.Module):
    "Divide by a spread that is the difference of two large numbers, which 16 bits do not hold."
    def forward(self, x):
        x = x + 20
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / (variance.clamp(min=0) + 1e-3).sqrt()

class Model(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 64), middle, nn.Linear(64, 4)
    def forward(self, x):
        return self.last(self.middle(self.first(x)).relu())
"""
TRAINING = """
teacher = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(1000):
    inputs = torch.randn(64, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16, enabled=AUTOCAST):
        outputs = model(inputs)
    loss = (outputs.float() - teacher(inputs).detach()).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def audited(folder, middle, *arguments, autocast=True):
    """Audit a training with this module in the middle of its model; the script sets no seed of its own."""
    source = f"{HEAD}\nAUTOCAST = {autocast}\nmodel = Model({middle})\n{TRAINING}"
    (folder / "script.py").write_text(source, "utf-8")
    command = [sys.executable, "-m", "amp_lessons", "audit", "script.py", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def runs_in(folder):
    told = json.loads((folder / "r.json").read_text("utf-8"))["tried"]
    return told, {run["what"]: run for run in told["runs"]}


@pytest.mark.thorough
def test_a_fragile_module_is_found_and_explains_the_difference(tmp_path):
    done = audited(tmp_path, "Spread()", "--steps", 60, "--json", "r.json", "--html", "r.html", "--try")
    assert done.returncode == 0, done.stderr
    told, runs = runs_in(tmp_path)
    assert told["something_to_gain"]
    assert set(runs) == {"as it is", "fp32", "equal run 2", "equal run 3", "bf16", "middle=fp32"}
    assert runs["middle=fp32"]["explained"] == pytest.approx(1.0, abs=0.2)
    assert runs["bf16"]["loss"] > runs["as it is"]["loss"], "fewer digits cancel to less"
    assert all(len(run["losses"]) == 60 for run in runs.values())
    assert "`middle=fp32` explains" in done.stderr
    assert "<code>middle=fp32</code> explains" in (tmp_path / "r.html").read_text("utf-8")
    assert runs["equal run 2"]["losses"][0] == runs["as it is"]["losses"][0], "it is nudged at the first step"


@pytest.mark.thorough
def test_a_healthy_run_has_nothing_to_gain_and_is_not_searched(tmp_path):
    done = audited(tmp_path, "nn.ReLU()", "--steps", 20, "--json", "r.json", "--try")
    told, runs = runs_in(tmp_path)
    assert not told["something_to_gain"]
    assert set(runs) == {"as it is", "fp32", "equal run 2", "equal run 3"}
    assert 0 < told["noise"] < 0.01
    assert "Nothing to gain" in " ".join(done.stderr.split())


@pytest.mark.thorough
def test_what_is_named_is_tried_and_what_cannot_be_says_why(tmp_path):
    wanted = ["first,middle=fp32", "midle=fp32", "reduce=fp32"]
    done = audited(tmp_path, "Spread()", "--steps", 20, "--json", "r.json", "--try", *wanted)
    _, runs = runs_in(tmp_path)
    assert runs["first,middle=fp32"]["loss"] == pytest.approx(runs["fp32"]["loss"], rel=0.01)
    assert "no module is called 'midle'; did you mean middle" in runs["midle=fp32"]["failed"]
    said = " ".join(done.stderr.split())
    if "no CUDA here" not in said:
        assert not runs["reduce=fp32"]["failed"]


def test_a_training_without_autocast_has_nothing_to_try(tmp_path):
    done = audited(tmp_path, "nn.ReLU()", "--steps", 3, "--try", autocast=False)
    assert "no loss was computed under autocast" in " ".join(done.stderr.split())


@pytest.mark.thorough
def test_when_time_is_over_runs_are_left_out_and_the_report_comes_all_the_same(tmp_path):
    done = audited(tmp_path, "Spread()", "--steps", 5, "--try", "--minutes", 0.01)
    said = " ".join(done.stderr.split())
    assert "Audit of script.py" in said
    assert "0.01 minutes were over; --minutes gives more" in said
    assert "fp32 was not tried" in said


@pytest.mark.thorough
def test_an_interruption_ends_the_trials_and_what_was_found_is_told(tmp_path, monkeypatch, capfd):
    """The files that were asked for are written all the same."""
    runs = []

    def run(command, **options):
        runs.append(command)
        raise KeyboardInterrupt

    (tmp_path / "script.py").write_text(f"{HEAD}\nAUTOCAST = True\nmodel = Model(nn.ReLU())\n{TRAINING}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("amp_lessons.cli.audit.trying.subprocess.run", run)
    assert cli.main(["audit", "script.py", "--steps", "3", "--json", "r.json", "--try"]) == 0
    assert len(runs) == 1
    told, _ = runs_in(tmp_path)
    assert told["left_out"][0] == "Not tried: `fp32`: it was interrupted."
    assert "fp32 was not tried" in capfd.readouterr().err


def test_ranks_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("raise SystemError('it ran')")
    for name, value in {"RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setitem(os.environ, name, value)
    assert cli.main(["audit", "s.py", "--try"]) == 2
    assert "start it without torchrun" in capsys.readouterr().err
