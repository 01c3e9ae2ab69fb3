"""``amp-lessons advise``: its report, its page, its exit status, its sentences for what cannot be used."""

from __future__ import annotations

import importlib
import sys

import pytest

from amp_lessons.cli.cli import main

SOURCE = """
import torch
from torch import nn

LINES = {lines!r}


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
    (tmp_path / f"{name}.py").write_text(SOURCE.format(lines=name), "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    yield name
    sys.modules.pop(name, None)


def test_a_healthy_model(module, capsys, tmp_path):
    assert (
        main(["advise", f"{module}:make_model", "--seconds", "20", "--steps", "2", "--html", "a.html"]) == 0
    )
    said = capsys.readouterr().out
    assert said.startswith("Sequential: On the A100 SXM 40 GB")
    assert "[computed]" in said
    assert "<h1>Sequential: On the A100" in (tmp_path / "a.html").read_text("utf-8")


def test_a_model_to_be_mended_and_a_batch_made_beside_it(module, capsys):
    assert main(["advise", f"{module}:overflowing", "--gpu", "T4", "--seconds", "20", "--steps", "2"]) == 1
    assert "`1` needs an island of fp32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("maker", "words"),
    [
        ("{}", "names no function: write my_module:make_model"),
        ("{}:nothing", "has no 'nothing'; it has"),
        ("{}.py:make_model", "write the module, not the file"),
        ("no_such_module:make", "there is no module 'no_such_module'"),
        ("{}:number", "returned int; a model would be right"),
        ("{}:raising", "raised RuntimeError: no weights here"),
        ("{}:LINES", "is no function that makes a model, but str"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(module, capsys, maker, words):
    assert main(["advise", maker.format(module)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.startswith("amp-lessons advise: ")
    assert captured.out == ""


def test_a_context_asks_what_decoding_takes_also_of_a_model_that_writes_nothing(module, capsys):
    assert main(["advise", f"{module}:make_model", "--seconds", "20", "--steps", "1", "--context", "50"]) == 0
    assert "What decoding takes is not known" in " ".join(capsys.readouterr().out.split())


def test_an_unknown_gpu(module, capsys):
    assert main(["advise", f"{module}:make_model", "--gpu", "RTX 1"]) == 2
    assert "there are T4" in capsys.readouterr().err
