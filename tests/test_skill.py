"""The skill for coding assistants, followed to the letter on patients of lesson 06."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from amp_lessons import clinic

ROOT = Path(__file__).parents[1]
SKILL = (ROOT / "skills" / "amp-lessons" / "SKILL.md").read_text("utf-8")
BLOCKS = {
    name: textwrap.dedent(code)
    for name, code in re.findall(r"^ *```sh (\w+)\n(.*?)^ *```", SKILL, re.MULTILINE | re.DOTALL)
}
SCRIPT = """
import torch
{code}

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.SiLU(), torch.nn.Linear(16, 5))
batches = [(torch.randn(8, 6), torch.randint(0, 5, (8,))) for _ in range(5)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
chosen = dict(device_type="cpu", dtype=torch.float16{more})
{name}(model, batches, optimizer, torch.nn.functional.cross_entropy, 4, **chosen)
"""
PATIENTS = {patient.id: patient for patient in clinic.patients()}


def run(command, folder):
    """Run a command of the skill as an assistant's shell would; return status and output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "AMP_LESSONS_HOME": str(folder / "home"),
    }
    command, how = ["bash", "-c", command], {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(command, cwd=folder, env=environment, **how)
    return done.returncode, done.stdout + done.stderr


def write(folder, source):
    name = re.search(r"def (train_\w+)\(", source)[1]
    more = ", max_norm=0.5" if "max_norm" in source else ""
    (folder / "train.py").write_text(SCRIPT.format(code=source, name=name, more=more))


def test_it_says_what_it_is_for():
    head = yaml.safe_load(SKILL.split("---")[1])
    assert head["name"] == "amp-lessons"
    assert 100 < len(head["description"]) <= 1024
    assert list(BLOCKS) == ["explain", "audit", "findings", "code", "advise"]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("id", ["heal_same_epochs", "heal_snail", "heal_standstill"])
def test_followed_to_the_letter_it_leads_to_a_mended_training(id, tmp_path):
    patient = PATIENTS[id]
    write(tmp_path, patient.source)
    status, said = run(BLOCKS["audit"], tmp_path)
    assert status == 1, said
    status, found = run(BLOCKS["findings"], tmp_path)
    assert status == 0
    codes = [line.split()[0] for line in found.splitlines()]
    assert patient.case.code in codes, found
    lines = [int(line.split()[2]) for line in found.splitlines() if line.startswith(patient.case.code)]
    assert 0 < lines[0] <= 2 + patient.source.count("\n"), "the place is in the patient's own code"
    status, said = run(BLOCKS["code"].replace("CODE", patient.case.code), tmp_path)
    assert (status, said.startswith(f"{patient.case.code}:")) == (0, True)
    write(tmp_path, patient.mended_source)
    assert run(BLOCKS["audit"], tmp_path)[0] == 0
    assert run(BLOCKS["findings"], tmp_path) == (0, "")


@pytest.mark.thorough
@pytest.mark.slow
def test_a_pasted_error_and_a_question_are_answered(tmp_path):
    (tmp_path / "error.txt").write_text("RuntimeError: expected scalar type Half but found Float\n")
    assert run(BLOCKS["explain"], tmp_path)[0] == 0
    (tmp_path / "error.txt").write_text("RuntimeError: the cat sat on the keyboard\n")
    assert run(BLOCKS["explain"], tmp_path)[0] == 1
    (tmp_path / "my_module.py").write_text(
        "import torch\ndef make_model():\n    model = torch.nn.Linear(64, 8)\n"
        "    return model, (torch.randn(16, 64), torch.randint(0, 8, (16,))), torch.nn.CrossEntropyLoss()\n"
    )
    status, said = run(BLOCKS["advise"].replace("--seconds 30", "--seconds 5"), tmp_path)
    assert status in (0, 1), said
