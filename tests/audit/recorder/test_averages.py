"""Moving averages of the weights, in all spellings: named where they are kept in 16 bits, else not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from amp_lessons import audit
from tests.audit.plain_loops import as_script, mistakes

Update = Callable[[list[Tensor], list[Tensor], float], None]


def each(update: Callable[[Tensor, Tensor, float], object]) -> Update:
    def all_of_them(averages: list[Tensor], weights: list[Tensor], part: float) -> None:
        for average, weight in zip(averages, weights, strict=True):
            update(average, weight, part)

    return all_of_them


def foreach_in_two(averages: list[Tensor], weights: list[Tensor], part: float) -> None:
    torch._foreach_mul_(averages, 1.0 - part)
    torch._foreach_add_(averages, weights, alpha=part)


def in_three(average: Tensor, weight: Tensor, part: float) -> None:
    average *= 1.0 - part
    average += part * weight


SPELLINGS: dict[str, Update] = {
    "lerp_": each(lambda average, weight, part: average.lerp_(weight, part)),
    "lerp_ by name": each(lambda average, weight, part: average.lerp_(end=weight, weight=part)),
    "mul_ and add_": each(lambda average, weight, part: average.mul_(1.0 - part).add_(weight, alpha=part)),
    "mul_ and add_ of a product": each(
        lambda average, weight, part: average.mul_(1.0 - part).add_(part * weight)
    ),
    "operators": each(in_three),
    "copy_ of the whole, as timm's": each(
        lambda average, weight, part: average.copy_((1.0 - part) * average + part * weight)
    ),
    "foreach": lambda averages, weights, part: torch._foreach_lerp_(averages, weights, part),
    "foreach by name": lambda averages, weights, part: torch._foreach_lerp_(averages, weights, weight=part),
    "foreach in two": foreach_in_two,
}


def train(update: Update, dtype: torch.dtype, part: float) -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to(dtype)
    averages = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, foreach=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 64, dtype=dtype)).float().square().mean().backward()
        optimizer.step()
        update(averages, [p.detach() for p in model.parameters()], part)


def report_of(name: str, dtype: torch.dtype, part: float) -> audit.Report:
    with audit.watch() as seen:
        as_script(train)(SPELLINGS[name], dtype, part)
    assert not seen.report.not_seen
    return seen.report


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize(
    ("part", "likely"), [(1e-6, ""), (0.1, "by its dtype; its numbers still moved")], ids=["stuck", "moving"]
)
def test_an_average_in_bf16_is_named_and_whether_it_moves(name, part, likely):
    finding = next(f for f in report_of(name, torch.bfloat16, part).findings if f.code == "average_stuck")
    assert finding.likely == likely


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_average_in_fp32_is_clean(name):
    assert mistakes(report_of(name, torch.float32, 1e-6)) == set()


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("waits", [False, True])
def test_an_average_that_goes_on_over_a_skipped_step_is_named_and_one_that_waits_is_not(name, waits):
    def train() -> None:
        torch.manual_seed(0)
        model = nn.Linear(64, 64)
        averages = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, foreach=True)
        scaler = torch.amp.GradScaler("cpu")
        for index in range(6):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 64)).square().mean() * (1e38 if index == 3 else 1)).backward()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            if not waits or scaler.get_scale() >= before:
                SPELLINGS[name](averages, [p.detach() for p in model.parameters()], 0.01)

    with audit.watch() as seen:
        as_script(train)()
    assert [step.index for step in seen.steps if not step.happened] == [3]
    assert ("average_on_skipped_step" in mistakes(seen.report)) is not waits


def test_copies_of_weights_and_restored_buffers_are_no_averages():
    def train() -> None:
        torch.manual_seed(0)
        model = nn.Linear(64, 64)
        kept, running = model.weight.detach().clone(), torch.zeros(64)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.5), torch.amp.GradScaler("cpu")
        for index in range(6):
            before = running.clone()
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 64)).square().mean() * (1e38 if index == 3 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            kept.copy_(model.weight.detach())
            running.copy_(before + 0.1 * torch.randn(64))
            running.copy_(before)

    with audit.watch() as seen:
        as_script(train)()
    assert "average_on_skipped_step" not in mistakes(seen.report)


def test_momentum_by_hand_is_no_average():
    def train() -> None:
        torch.manual_seed(0)
        model = nn.Linear(8, 8).to(torch.bfloat16)
        momenta = [torch.zeros_like(p) for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 8, dtype=torch.bfloat16)).float().square().mean().backward()
            for momentum, parameter in zip(momenta, model.parameters(), strict=True):
                momentum.mul_(0.9).add_(parameter.grad)
                parameter.grad.copy_(momentum)
            optimizer.step()

    with audit.watch() as seen:
        as_script(train)()
    assert "average_stuck" not in mistakes(seen.report)


def test_norms_of_scaled_gradients_are_heard_however_their_arguments_are_named():
    def norms() -> None:
        weight = torch.ones(4, requires_grad=True)
        optimizer, scaler = torch.optim.SGD([weight], lr=0.1), torch.amp.GradScaler("cpu")
        for norm in (lambda g: torch.linalg.vector_norm(x=g), lambda g: torch.norm(input=g)):
            optimizer.zero_grad()
            scaler.scale((weight * weight).sum()).backward()
            as_script(norm)(weight.grad)
            scaler.step(optimizer)
            scaler.update()

    with audit.watch() as seen:
        norms()
    assert not seen.report.not_seen
    found = [finding for finding in seen.report.findings if finding.code == "logs_scaled"]
    assert sum(finding.count for finding in found) == 2
