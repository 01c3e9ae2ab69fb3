"""Lesson 07's form for a learner's own model: one cell is replaced, and the others fit."""

from __future__ import annotations

import re

import pytest

from tests.course.material.lesson07_cells import CELLS, names_of

FORM = [name for name in CELLS if name.startswith("own-") and not name.endswith("quiz")]
IMAGES = """
def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )

my_inputs, my_target = (torch.rand(6, 3, 12, 12),), torch.randint(0, 5, (6,))
my_loss = F.cross_entropy
"""
A_NUMBER_FROM_TWO_INPUTS = """
class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Linear(7, 16), nn.Linear(3, 16), nn.Linear(16, 1)

    def forward(self, left, right):
        return self.out(torch.tanh(self.left(left) + self.right(right)))

make_model = TwoInputs
my_inputs, my_target = (torch.randn(10, 7), torch.randn(10, 3)), torch.randn(10, 1)
my_loss = nn.MSELoss()
"""
TOKENS = """
class NextToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens))).flatten(0, 1)

make_model = NextToken
my_inputs, my_target = (torch.randint(0, 50, (4, 9)),), torch.randint(0, 50, (4, 9))
my_loss = lambda output, target: F.cross_entropy(output, target.flatten())
"""


MODELS = {"images": IMAGES, "number": A_NUMBER_FROM_TWO_INPUTS, "tokens": TOKENS}


@pytest.mark.slow
@pytest.mark.few
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_cells_after_it_take_any_model(monkeypatch, capsys, model):
    monkeypatch.setitem(CELLS, "own-model", model)
    names = names_of(*FORM)
    said = capsys.readouterr().out
    assert "samples in 24 GiB" in said
    assert "times as fast" in said
    assert len(names["seen"].steps) == 20
    assert names["advice"].of == type(names["make_model"]()).__name__
    assert re.search(r"^\[measured\] \d+ steps of training", said, re.MULTILINE)
