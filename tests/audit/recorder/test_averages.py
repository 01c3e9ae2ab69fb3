"""Moving averages of the weights, in all spellings: named where they are kept in 16 bits, else not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from amp_lessons import audit
from amp_lessons.audit.recorder.later import Lasting, place_of
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


def watched(
    beside: Callable[[nn.Module, int], object] = lambda model, step: None,
    dtype: torch.dtype = torch.float32,
    overflows: bool = False,
    size: int = 64,
    change_gradients: Callable[[Tensor, Tensor], object] = lambda gradient, weight: None,
) -> audit.Report:
    """Train, where a batch ``overflows`` with a scaler that skips it.

    ``beside`` is called before the first step, as if it were -1, and after each.
    """

    def train() -> None:
        torch.manual_seed(0)
        model = nn.Linear(size, size).to(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, foreach=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=overflows)
        beside(model, -1)
        for step in range(6 if overflows else 3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, size, dtype=dtype)).float().square().mean()
            scaler.scale(loss * (1e38 if step == 3 else 1)).backward()
            if overflows:
                scaler.unscale_(optimizer)
            for parameter in model.parameters():
                change_gradients(parameter.grad, parameter.detach())
            scaler.step(optimizer)
            scaler.update()
            beside(model, step)

    with audit.watch() as seen:
        as_script(train)()
    assert not seen.report.not_seen
    assert [step.index for step in seen.steps if not step.happened] == [3] * overflows
    return seen.report


def averaging(name: str, part: float, wanted=lambda step: True) -> Callable[[nn.Module, int], None]:
    """Average the weights after the steps that are ``wanted``."""
    averages: list[Tensor] = []

    def average(model: nn.Module, step: int) -> None:
        weights = [p.detach() for p in model.parameters()]
        if step < 0:
            averages.extend(each.clone() for each in weights)
        elif wanted(step):
            SPELLINGS[name](averages, weights, part)

    return average


# What is multiplied before it is taken in is known for weights by its numbers alone.
BY_NUMBERS = {"mul_ and add_ of a product", "operators", "copy_ of the whole, as timm's"}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize(
    ("part", "doubt"), [(1e-6, ""), (0.1, "by its dtype; its numbers still moved")], ids=["stuck", "moving"]
)
def test_an_average_in_bf16_is_named_and_whether_it_moves(name, part, doubt):
    report = watched(averaging(name, part), torch.bfloat16)
    finding = next(f for f in report.findings if f.code == "average_stuck")
    by_numbers = "in 2 steps its numbers took in a part of the weights, which may be something else"
    assert finding.likely == "; ".join(filter(None, [by_numbers if name in BY_NUMBERS else "", doubt]))


@pytest.mark.parametrize("name", SPELLINGS)
def test_what_has_been_an_average_in_one_step_alone_is_one_only_where_it_took_in_the_weights_themselves(name):
    once = averaging(name, 1e-6, wanted=lambda step: step == 0)
    assert ("average_stuck" in mistakes(watched(once, torch.bfloat16))) is (name not in BY_NUMBERS)


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_average_in_fp32_is_clean(name):
    assert mistakes(watched(averaging(name, 1e-6))) == set()


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("waits", [False, True])
def test_an_average_that_goes_on_over_a_skipped_step_is_named_and_one_that_waits_is_not(name, waits):
    average = averaging(name, 0.01, wanted=lambda step: not waits or step != 3)
    assert ("average_on_skipped_step" in mistakes(watched(average, overflows=True))) is not waits


AVERAGES = {"average_stuck", "average_on_skipped_step"}


def test_copies_of_weights_and_restored_buffers_are_no_averages():
    kept, running = torch.zeros(64, 64), torch.zeros(64)

    def copies(model: nn.Module, step: int) -> None:
        before = running.clone()
        kept.copy_(model.weight.detach())
        running.copy_(before + 0.1 * torch.randn(64))
        running.copy_(before)

    assert not AVERAGES & mistakes(watched(copies, overflows=True))


def with_gradients(change: Callable[[Tensor, Tensor], object], dtype: torch.dtype) -> set[str]:
    """Return what is found where gradients are changed by hand, once they are unscaled."""
    return mistakes(watched(dtype=dtype, overflows=True, size=8, change_gradients=change))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "decay",
    [
        lambda gradient, weight: gradient.add_(weight, alpha=1e-4),
        lambda gradient, weight: gradient.add_(1e-4 * weight),
        lambda gradient, weight: gradient.mul_(0.99).add_(weight, alpha=0.01),
        lambda gradient, weight: gradient.copy_(0.99 * gradient + 0.01 * weight),
        lambda gradient, weight: gradient.lerp_(weight, 0.01),
    ],
)
def test_weight_decay_by_hand_is_no_average(decay, dtype):
    assert not AVERAGES & with_gradients(decay, dtype)


def test_other_numbers_of_a_weights_size_are_no_average():
    """The running mean of activations in bf16, of as many features as there are in a bias."""
    running, decaying = torch.zeros(8, dtype=torch.bfloat16), torch.ones(8, 8, dtype=torch.bfloat16)

    def follow(gradient: Tensor, weight: Tensor) -> None:
        running.lerp_(torch.rand(8).to(torch.bfloat16), 0.01)
        running.mul_(0.9).add_(torch.rand(8).to(torch.bfloat16), alpha=0.1)
        decaying.copy_(0.9 * decaying + 0.1 * torch.rand(8, 8))

    assert not AVERAGES & with_gradients(follow, torch.bfloat16)


def test_weights_of_another_training_that_are_still_in_memory_make_no_average():
    """A library fills memory again that held last step's weights, and old, far larger weights lie about.

    FSDP2 gathers weights in this way: a part of what moved points towards anything that is large enough.
    """
    old = torch.optim.SGD([nn.Parameter(1e8 * torch.randn(shape)) for shape in ((8, 8), (8,))], lr=0.1)
    gathered = torch.zeros(8, 8)

    def gather(gradient: Tensor, weight: Tensor) -> None:
        if weight.dim() == 2:
            gathered.copy_(weight)

    assert "average_on_skipped_step" not in with_gradients(gather, torch.float32)
    assert old.param_groups


def test_a_place_is_not_taken_for_another_that_was_given_the_same_memory():
    tensor = torch.randn(64)
    lasting = Lasting.of(tensor)
    assert lasting is not None
    assert lasting.is_of(tensor.view(8, 8))
    assert not lasting.is_of(tensor[1:])
    del tensor
    assert not any(lasting.is_of(torch.randn(64)) for _ in range(100))


def test_what_has_no_memory_of_its_own_lies_nowhere():
    with FakeTensorMode():
        fake = torch.zeros(4)
    for each in (
        fake,
        torch.zeros(4, device="meta"),
        TwoTensor(torch.zeros(4), torch.zeros(4)),
        torch.zeros(0),
    ):
        assert place_of(each) is None
    seen = []
    torch.vmap(lambda each: seen.append(place_of(each)) or each)(torch.zeros(3, 4))
    assert seen == [None]


def test_momentum_by_hand_is_no_average():
    momenta: dict[torch.Size, Tensor] = {}

    def move(gradient: Tensor, weight: Tensor) -> None:
        momentum = momenta.setdefault(weight.shape, torch.zeros_like(weight))
        momentum.mul_(0.9).add_(gradient)
        gradient.copy_(momentum)

    assert "average_stuck" not in mistakes(watched(dtype=torch.bfloat16, size=8, change_gradients=move))


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
