"""Weights in bf16 are remarked on at the first step, with since when they are so, where that can be known."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from amp_lessons import audit

CODE = "pure_bfloat16"


def step(model: nn.Module, optimizer: torch.optim.Optimizer, autocast: bool = False) -> None:
    inputs = torch.randn(4, 8, dtype=next(model.parameters()).dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = model(inputs).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def remark(report: audit.Report) -> Any:
    """Return the remark on weights in bf16, None without one."""
    return next((each for each in report.findings if each.code == CODE), None)


CASTS = {
    "bfloat16": lambda model: model.bfloat16(),
    "to": lambda model: model.to(torch.bfloat16),
    "to, by keyword": lambda model: model.to(dtype=torch.bfloat16),
    "of a whole": lambda model: nn.Sequential(model).bfloat16(),
    "half, and back": lambda model: model.half().bfloat16(),
}


@pytest.mark.parametrize("name", CASTS)
def test_a_cast_inside_the_watch_is_named_with_its_line(name):
    with audit.watch(every=3) as seen:
        model = nn.Linear(8, 4)
        CASTS[name](model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(5):
            step(model, optimizer)
    found = remark(seen.report)
    assert (found.kind, found.count, found.first_step, found.lesson) == ("note", 1, 0, "07")
    method = "to" if name.startswith("to") else "bfloat16"
    assert f"since a call of .{method}() (" in found.message
    assert Path(__file__).name in found.message
    assert "its moments (exp_avg and exp_avg_sq)" in found.message
    assert "autocast" not in found.message
    assert seen.report.passed


def test_a_cast_before_the_watch_is_not_guessed_at():
    model = nn.Linear(8, 4).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with audit.watch() as seen:
        step(model, optimizer, autocast=True)
    found = remark(seen.report)
    assert "steps are bf16: that is pure" in found.message
    assert "whatever autocast or a flag" in found.message


SOUND = {
    "moved to a device": lambda model: model.to("cpu"),
    "to fp32": lambda model: model.bfloat16().to(torch.float32),
    "a copy for files": lambda model: copy.deepcopy(model).bfloat16(),
    "frozen below": lambda model: nn.Sequential(nn.Linear(8, 8).bfloat16().requires_grad_(False), model),
}


@pytest.mark.parametrize("name", SOUND)
def test_fp32_weights_get_no_remark(name):
    with audit.watch() as seen:
        model = nn.Linear(8, 4)
        SOUND[name](model)
        step(model, torch.optim.AdamW(model.parameters()), autocast=True)
    assert not seen.report.findings


def loaded(folder: Path, **options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=9, **sizes)).bfloat16().save_pretrained(folder)
    return transformers.BertModel.from_pretrained(folder, **options)


class WithHead(nn.Module):
    """A model of one's own around one that was loaded."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.body(torch.zeros(2, 3, dtype=torch.long))[0]


@pytest.mark.parametrize(
    ("options", "cast", "said"),
    [
        ({"dtype": torch.bfloat16}, False, "since they were loaded"),
        ({"dtype": "auto"}, False, "since they were loaded"),
        ({"dtype": torch.float32}, True, "since a cast that was not seen: they were loaded in fp32"),
        ({"dtype": torch.float32}, False, None),
    ],
)
def test_what_transformers_has_loaded_says_in_which_dtype(tmp_path, options, cast, said):
    model = WithHead(loaded(tmp_path, **options))
    model = model.bfloat16() if cast else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    with audit.watch(model) as seen:
        step(model, optimizer, autocast=True)
    found = remark(seen.report)
    assert (found is None) == (said is None)
    assert said is None or said in found.message


def test_weights_that_were_loaded_in_16_bits_are_named_with_the_line_that_loaded_them(tmp_path):
    loaded(tmp_path)  # writes the files
    transformers = pytest.importorskip("transformers")
    with audit.watch() as seen:
        model = WithHead(transformers.BertModel.from_pretrained(tmp_path, dtype=torch.bfloat16))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
        step(model, optimizer, autocast=True)
    found = remark(seen.report)
    assert "since they were loaded" in found.message
    assert "from_pretrained(tmp_path" in found.place.source


def test_weights_that_were_made_in_16_bits_are_named_with_the_line_that_made_them():
    with audit.watch() as seen:
        model = nn.Linear(8, 4, dtype=torch.bfloat16)
        step(model, torch.optim.AdamW(model.parameters(), lr=1.0))
    found = remark(seen.report)
    assert "since they were made (" in found.message
    assert found.place.source == "model = nn.Linear(8, 4, dtype=torch.bfloat16)"
