"""The instruments without the course: nothing can be imported but what `pip install amp-lessons` brings."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import metadata
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from amp_lessons import audit, formats, fp8, parallel, scaling
from tests.test_architecture import imported_by, sources
from tests.test_packaging import PROJECT, ROOT

pytestmark = pytest.mark.slow

# What of the instruments draws, where matplotlib is there.
DRAWS = ("audit.page.drawings", "drawing.axes", "drawing.picture", "drawing.style")
ABOVE = ("course", "teaching", "cli")

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


def own() -> list[str]:
    """Return the instruments' modules."""
    return [module for module in sources() if module.count(".") and module.split(".")[1] not in ABOVE]


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
    owners = metadata.packages_distributions().items()
    return {name for name, them in owners if not {*map(canonicalize_name, them)} & kept}


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
    imported = {name.partition(".")[0] for module in own() for name in imported_by(module)}
    owners = metadata.packages_distributions()
    needed = {canonicalize_name(owner) for name in imported for owner in owners.get(name, ())}
    assert {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]} <= needed


FROM_ABOVE = """
from amp_lessons import views
from amp_lessons.cli.cli import main

assert callable(views.audit_page) and callable(views.advice_page)
print([main([command]) for command in ("lab", "interview", "progress", "grade")])
"""


@pytest.mark.few
@pytest.mark.parametrize("default", ["float32", "bfloat16", "float64"])
def test_every_instrument_can_be_imported_and_the_course_says_what_installs_it(alone, default):
    names = [module for module in own() if not module.endswith((*DRAWS, ".__main__"))]
    before = f"import torch; torch.set_default_dtype(torch.{default})"  # as scripts of language models do
    done = alone("-c", "\n".join([before, f"import {', '.join(names)}", FROM_ABOVE]))
    assert (done.returncode, done.stdout) == (0, "[2, 2, 2, 2]\n"), done.stderr
    assert done.stderr.count("pip install 'amp-lessons[lab]'") == 4
    assert "amp-lessons lab is a part of the course" in done.stderr


def audited_losses() -> tuple[Any, ...]:
    """Train a little with a scaler, watched; return what the audit found, and the losses it saw."""
    torch.manual_seed(0)
    net, x = torch.nn.Linear(64, 8, dtype=torch.float32), torch.randn(16, 64, dtype=torch.float32)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with audit.watch(net, every=2) as seen:
        for _ in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = net(x).float().square().mean()
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    report = seen.report
    return [each.code for each in report.findings], [step.loss for step in report.steps]


def numbers_of_instruments() -> dict[str, Any]:
    """Compute with every instrument that makes tensors of its own, from inputs in fp32."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(16, 64, generator=draw, dtype=torch.float32) * 1e-3
    product = formats.product(x, x.t(), formats.FORMATS["bf16"])
    net = torch.nn.Sequential(torch.nn.Linear(64, 8, dtype=torch.float32))
    torch.nn.init.constant_(net[0].weight, 0.1)
    torch.nn.init.zeros_(net[0].bias)
    classes, loss_fn = torch.arange(16) % 8, torch.nn.CrossEntropyLoss()
    quantized = fp8.place_by_hand(x, formats.FORMATS["fp8_e4m3"], 3).quantized
    return {
        "rounded": [each.quantize(x).tolist() for name, each in formats.FORMATS.items() if name != "e8m0"],
        "blocks": [str(formats.scaling_error(x, each)) for each in formats.BLOCK_FORMATS.values()],
        "sums": formats.repeated_update(0.001, formats.FORMATS["bf16"], 20),
        "product": (product.dtype, product.tolist()),
        "turned": fp8.random_hadamard(x).tolist(),
        "census": [scaling.backward_at(net, (x, classes), loss_fn, scale) for scale in (1.0, 2.0**20)],
        "by hand": (quantized.scales.tolist(), quantized.amax.tolist()),
        "long sums": fp8.long_sums(2**7).exact.tolist(),
        "recipe": [each.tolist() for each in fp8.convert(net, fp8.RECIPES["delayed"]).state_dict().values()],
        "ranks": parallel.rank_gradients(2, 4).tolist(),
    }


@contextlib.contextmanager
def default(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


DTYPES = [torch.bfloat16, torch.float16, torch.float64]
SETTINGS = {
    **{str(dtype): partial(default, dtype) for dtype in DTYPES},
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_they_compute_the_same_whatever_a_script_has_set(setting):
    expected = numbers_of_instruments()
    with SETTINGS[setting]():
        assert numbers_of_instruments() == expected


@pytest.mark.few
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_training_in_fp32_is_audited_alike_whatever_dtype_is_the_default(dtype):
    expected = audited_losses()
    with default(dtype):
        assert audited_losses() == expected


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


@pytest.mark.thorough
def test_a_model_is_advised_on(alone, tmp_path):
    (tmp_path / "made.py").write_text(MODEL)
    done = alone("-m", "amp_lessons", "advise", "made:make_model", "--steps=4", "--html=a.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "a.html").read_text()
    assert page.count("pip install matplotlib") == 1
    assert "<img" not in page
