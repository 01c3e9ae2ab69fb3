"""A penalty on gradients of a scaled loss: named where nothing has divided them by the scale."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad

from amp_lessons import audit
from amp_lessons.audit.recorder import graph
from tests.audit.plain_loops import as_script, mistakes

Penalty = Callable[[list[Tensor], torch.amp.GradScaler], Tensor]


def norm(gradients: Any) -> Tensor:
    return torch.stack([gradient.norm() for gradient in gradients]).norm()


def of_the_documentation(gradients: list[Tensor], scaler: torch.amp.GradScaler) -> Tensor:
    inverse = 1.0 / scaler.get_scale()
    with torch.autocast("cpu", dtype=torch.float16):
        total: Any = 0
        for gradient in [each * inverse for each in gradients]:
            total += gradient.pow(2).sum()
        return total.sqrt()


RIGHT: dict[str, Penalty] = {
    "PyTorch's own example": of_the_documentation,
    "each divided": lambda found, scaler: norm(each / scaler.get_scale() for each in found),
    "by the scaler's tensor": lambda found, scaler: norm(each / scaler._scale for each in found),
    "by an inverse tensor": lambda found, scaler: norm(scaler._scale.reciprocal() * each for each in found),
    "in place": lambda found, scaler: norm(each.clone().div_(scaler.get_scale()) for each in found),
    "all at once": lambda found, scaler: norm(torch._foreach_div(found, scaler.get_scale())),
    "the norm divided": lambda found, scaler: 0.1 * norm(found) / scaler.get_scale(),
    "the squares divided": lambda found, scaler: (
        sum(each.square().sum() for each in found) / scaler.get_scale() ** 2
    ),
    "weight and scale in one": lambda found, scaler: norm(found) * (0.01 / scaler.get_scale()),
    "all in one": lambda found, scaler: norm(found) / (100 * scaler.get_scale()),
    "a direction": lambda found, scaler: (found[0] / found[0].norm()).sum(),
    "a logarithm": lambda found, scaler: norm(found).log(),
    "not used": lambda found, scaler: torch.zeros(()),
    "as a number": lambda found, scaler: torch.tensor(norm(found).item() / scaler.get_scale()),
}
WRONG: dict[str, Penalty] = {
    "as they are": lambda found, scaler: norm(found),
    "weighted": lambda found, scaler: 0.01 * norm(found),
    "with a weight smaller than the scale is large": lambda found, scaler: 1e-5 * norm(found),
    "divided by more than the scale": lambda found, scaler: norm(found) / 1e5,
    "divided by their number": lambda found, scaler: norm(found) / len(found),
    "squared": lambda found, scaler: sum((each * each).sum() for each in found),
    "of unit length": lambda found, scaler: (norm(found) - 1) ** 2,
}


def train(
    penalty: Penalty,
    enabled: bool = True,
    scale_first: bool = True,
    create_graph: bool = True,
    **options: Any,
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=enabled)
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.float16 if enabled else torch.bfloat16):
            loss = model(torch.randn(6, 4)).float().square().mean()
        first = scaler.scale(loss) if scale_first else loss
        found = grad(first, list(model.parameters()), create_graph=create_graph, retain_graph=True, **options)
        whole = loss + penalty(list(found), scaler)
        optimizer.zero_grad()
        scaler.scale(whole).backward()
        scaler.step(optimizer)
        scaler.update()


def found_in(*args: Any, **kwargs: Any) -> audit.Report:
    with audit.watch() as seen:
        as_script(train)(*args, **kwargs)
    assert not seen.report.not_seen
    return seen.report


@pytest.mark.parametrize("name", RIGHT)
def test_a_penalty_on_true_gradients_is_clean(name):
    assert mistakes(found_in(RIGHT[name])) == set()


@pytest.mark.parametrize("name", WRONG)
def test_a_penalty_on_scaled_gradients_is_named_where_they_were_taken(name):
    report = found_in(WRONG[name])
    finding = next(each for each in report.findings if each.code == "penalty_on_scaled_gradients")
    assert "far too much, at a scale of" in finding.message
    assert finding.count == 2
    lines, first = inspect.getsourcelines(train)
    assert "grad(first" in lines[finding.place.line - first]


SEVERAL = {"grad_outputs": torch.tensor([1.0, 0.5]), "is_grads_batched": True}


@pytest.mark.parametrize("name", ["each divided", "the norm divided", "not used"])
def test_penalties_on_true_gradients_of_several_directions_are_clean(name):
    assert mistakes(found_in(RIGHT[name], **SEVERAL)) == set()


@pytest.mark.parametrize("name", ["as they are", "weighted"])
def test_penalties_on_scaled_gradients_of_several_directions_are_named(name):
    assert mistakes(found_in(WRONG[name], **SEVERAL)) == {"penalty_on_scaled_gradients"}


@pytest.mark.parametrize("options", [{"enabled": False}, {"scale_first": False}, {"create_graph": False}])
def test_gradients_that_carry_no_scale_or_have_no_graph_are_no_penalty_on_scaled_ones(options):
    codes = mistakes(found_in(WRONG["as they are"], **options))
    assert "penalty_on_scaled_gradients" not in codes


@pytest.mark.parametrize("shared", [True, False])
def test_only_a_term_of_the_same_weights_is_a_part_that_was_left_unscaled(shared):
    scaled_net, other_net, inputs = nn.Linear(8, 1), nn.Linear(8, 1), torch.randn(4, 8)
    scaled = scaled_net(inputs).mean() * 1024.0
    graph.mark(scaled, 1)
    other = (scaled_net if shared else other_net)(inputs).square().mean()
    assert graph.has_unscaled_term(scaled + other, [1024.0]) is shared
