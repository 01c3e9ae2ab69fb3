"""A forward pass is stopped where inf or NaN are made: by module and line, not by what carries them."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

from amp_lessons import audit


class Attention(nn.Module):
    def __init__(self, diagonal: int = 1) -> None:
        super().__init__()
        self.project, self.diagonal = nn.Linear(8, 8), diagonal

    def forward(self, x):
        scores = self.project(x) @ x.transpose(-1, -2)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(self.diagonal)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)  # of a closed row
        return weights @ x


class Direction(nn.Module):
    def forward(self, x):
        return x / x.square().sum(-1, keepdim=True).sqrt()  # of zeros


class Model(nn.Module):
    def __init__(self, diagonal: int = 1) -> None:
        super().__init__()
        self.attention, self.direction = Attention(diagonal), Direction()
        self.norm, self.head = nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.norm(self.direction(self.attention(x)).flatten(0, 1)))


def stopped(model: nn.Module, x: torch.Tensor, dtype: torch.dtype | None = None) -> str:
    autocast = torch.autocast("cpu", dtype, enabled=dtype is not None)
    with audit.stop_at_nan(model), autocast, pytest.raises(FloatingPointError) as raised:
        model(x)
    return str(raised.value)


def marked(comment: str) -> str:
    with open(__file__, encoding="utf-8") as file:
        return next(f":{n}  " for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {comment}"))


def test_a_mask_is_put_in_on_purpose_and_the_pass_goes_through():
    model, x = Model(), torch.randn(2, 5, 8)
    with audit.stop_at_nan(model), torch.autocast("cpu", torch.float16):
        assert model(x).isfinite().all()


def test_a_division_by_zero_is_found_in_the_module_that_divides():
    said = stopped(Model(), torch.zeros(2, 5, 8))
    assert said.startswith("`direction` (Direction) returned inf or NaN and was given finite numbers")
    assert "the operation div made them in float32" in said
    assert marked("of zeros") in said


def test_a_product_beyond_fp16_is_found_at_its_line_and_in_its_format():
    said = stopped(Model(), torch.full((2, 5, 8), 3e4), torch.float16)
    assert re.search(r"`attention.*made them in float16 at .*:\d+  ", said)


def test_a_row_without_an_open_place_is_the_softmax_s():
    said = stopped(Model(diagonal=0), torch.randn(2, 5, 8))
    assert "the operation _softmax made them" in said
    assert marked("of a closed row") in said


def test_weights_and_inputs_that_are_broken_already_are_not_the_module_s_doing():
    model = Model()
    broken = torch.randn(2, 5, 8)
    broken[0, 0, 0] = torch.inf
    assert stopped(model, broken) == "`Model` (Model) was given inf or NaN: its inputs have them"
    model.head.weight.data[0, 0] = torch.nan
    assert "`head` (Linear) returned inf or NaN, for its weights are so already" in stopped(
        model, torch.randn(2, 5, 8)
    )


def test_buffers_are_as_they_were_and_nothing_is_left_on_the_model():
    model, before = Model(), None
    hooks = [len(each._forward_hooks) for each in model.modules()]
    before = copy.deepcopy(model.state_dict())
    stopped(model, torch.zeros(2, 5, 8))
    assert all(torch.equal(before[name], each) for name, each in model.state_dict().items())
    assert [len(each._forward_hooks) for each in model.modules()] == hooks


def test_training_is_the_same_bit_for_bit():
    def trained(guarded: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        guard = audit.stop_at_nan(model) if guarded else None
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(2, 5, 8)).square().mean().backward()
            optimizer.step()
        if guard is not None:
            guard.remove()
        return list(model.parameters())

    assert all(map(torch.equal, trained(True), trained(False)))


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"nn\.Module"):
        audit.stop_at_nan(lambda x: x)
