"""The instruments without the course: nothing can be imported but what `pip install amp-lessons` brings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_architecture import BUILDING, IN_ROOMS, imported_by
from tests.test_packaging import PROJECT, ROOT

pytestmark = pytest.mark.slow

# What of the instruments draws, where matplotlib is there.
DRAWS = ("audit.page.drawings", "views.base.picture", "views.base.style")

# Python imports sitecustomize when it starts, so the processes that the audit starts are held to it too.
HIDING = """
import sys
from importlib.machinery import PathFinder

HIDDEN = set({hidden!r})

class Declared(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if path is None and name in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[:] = [Declared if finder is PathFinder else finder for finder in sys.meta_path]
"""

TRAINING = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(12):
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = model(torch.randn(4, 8)).float().square().mean()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # of gradients that are still scaled
    scaler.step(optimizer)
    scaler.update()
"""

MODEL = """
import torch

def make_model():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    return model, (torch.randn(4, 8), torch.randint(3, (4,))), torch.nn.CrossEntropyLoss()
"""


def brought() -> set[str]:
    """Return the distributions that `pip install amp-lessons` brings, those that they need included."""
    waiting, found = list(PROJECT["dependencies"]), set()
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += metadata.requires(name) or []
    return found


def hidden() -> set[str]:
    """Return the names under which everything else that is installed here is imported."""
    kept = {*brought(), "amp-lessons"}
    return {
        name
        for name, owners in metadata.packages_distributions().items()
        if not {*map(canonicalize_name, owners)} & kept
    }


@pytest.fixture
def alone(tmp_path):
    """Run Python in a folder of its own, where the course's packages cannot be imported."""
    (tmp_path / "hiding").mkdir()
    (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDING.format(hidden=sorted(hidden())))
    path = os.pathsep.join([str(tmp_path / "hiding"), str(ROOT)])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    return run


def test_what_is_hidden_is_the_course_and_not_what_the_instruments_need():
    assert {"IPython", "anywidget", "ipywidgets", "jupyterlab", "matplotlib", "sklearn"} <= hidden()
    assert not {"torch", "numpy", "amp_lessons"} & hidden()


def test_each_dependency_is_imported_by_an_instrument():
    building = {module: BUILDING[room] for module, room in IN_ROOMS}
    own = [module for module in building if building[module] in ("The instruments", "What all of them use")]
    imported = {name.partition(".")[0] for module in own for name in imported_by(module)}
    assert {Requirement(line).name for line in PROJECT["dependencies"]} <= imported


FROM_ABOVE = """
from amp_lessons import views
from amp_lessons.commands.cli import main

assert callable(views.audit_page) and callable(views.advice_page)
print([main([command]) for command in ("lab", "interview", "progress", "grade")])
"""


def test_every_instrument_can_be_imported_and_the_course_says_what_installs_it(alone):
    own = [module for module, room in IN_ROOMS if BUILDING[room] == "The instruments"]
    names = [module for module in own if not module.endswith((*DRAWS, ".__main__"))]
    done = alone("-c", "\n".join([f"import {', '.join(names)}", FROM_ABOVE]))
    assert (done.returncode, done.stdout) == (0, "[2, 2, 2, 2]\n"), done.stderr
    assert done.stderr.count("pip install 'amp-lessons[lab]'") == 4
    assert "amp-lessons lab is a part of the course" in done.stderr


def test_a_script_is_audited(alone, tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    done = alone("-m", "amp_lessons", "audit", "train.py", "--every=3", "--html=a.html", "--json=a.json")
    assert done.returncode == 1, done.stderr
    document, page = json.loads((tmp_path / "a.json").read_text()), (tmp_path / "a.html").read_text()
    assert not document["passed"]
    assert len(document["steps"]) == 12
    assert page.count("pip install matplotlib") == 1
    assert "<img" not in page
    assert "In fp16" in page  # what the picture would have shown, in words


def test_a_model_is_advised_on(alone, tmp_path):
    (tmp_path / "made.py").write_text(MODEL)
    done = alone("-m", "amp_lessons", "advise", "made:make_model", "--steps=4", "--html=a.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "a.html").read_text()
    assert page.count("pip install matplotlib") == 1
    assert "<img" not in page
