"""``amp-lessons advise``: its report, its page, its exit status, its sentences for what cannot be used."""

from __future__ import annotations

import importlib
import sys

import pytest

SOURCE = """
import torch
from torch import nn

LINES = "some text"


class Energy(nn.Module):
    def forward(self, h):
        return h / (h * h).sum(-1, keepdim=True).sqrt()


def make_model():
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3)), batch(), nn.CrossEntropyLoss()


def batch():
    return torch.randn(4, 8), torch.randint(0, 3, (4,))


def overflowing():
    model = nn.Sequential(nn.Linear(8, 16), Energy(), nn.Linear(16, 3))
    model[0].weight.data.mul_(10_000)
    return model


make_batch, loss = batch, nn.CrossEntropyLoss()


def number():
    return 3


def raising():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    name = f"advised_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SOURCE, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    yield name
    sys.modules.pop(name, None)


def test_a_healthy_model_and_a_context_where_nothing_is_written(module, session, tmp_path):
    said = session(f"advise {module}:make_model --seconds 20 --steps 2 --context 50 --html a.html")
    assert "\nSequential: On the A100 SXM 40 GB" in said
    assert "[computed]" in said
    assert "What decoding takes is not known" in " ".join(said.split())
    assert said.endswith("=> 0")
    assert "<h1>Sequential: On the A100" in (tmp_path / "a.html").read_text("utf-8")


def test_a_model_to_be_mended_and_a_batch_made_beside_it(module, session):
    said = session(f"advise {module}:overflowing --gpu T4 --seconds 20 --steps 2")
    assert "`1` needs an island of fp32" in said
    assert said.endswith("=> 1")


MAKERS = (
    *("MODULE", "MODULE:nothing", "MODULE.py:make_model", "no_such_module:make", "MODULE:number"),
    *("MODULE:raising", "MODULE:LINES", "MODULE:make_model --gpu 'RTX 1'"),
)


def test_what_cannot_be_used_gets_a_sentence(module, session, golden):
    told = session(*(f"advise {each.replace('MODULE', module)}" for each in MAKERS))
    golden("advise.txt", told.replace(module, "MODULE"))
