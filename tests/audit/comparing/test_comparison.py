"""Differences that were planted are found at their module, and what rounding does is not reported.

Six architectures train for three steps, once as they are and once with something planted into one module: its
dtype, its ``eps`` or whatever else its definition says, a cast, another kernel, another order of a sum, one
wrong weight. What is found is the place where the two runs part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_lessons import audit
from amp_lessons.audit.comparing.recording import Recording
from tests.measure import architectures

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

SIX = (
    architectures.mlp,
    architectures.convnet,
    architectures.residual,
    architectures.tied_language_model,
    architectures.transformer,
    architectures.mixture_with_nested_inputs,
)
OF_TRANSFORMERS = (architectures.gpt2, architectures.bert, architectures.resnet, architectures.vit)
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}
Planted = Callable[[nn.Module], Any]


def loss_of(output: Any) -> Tensor:
    if getattr(output, "loss", None) is not None:
        return output.loss
    output = output[0] if isinstance(output, tuple) else output
    output = output if isinstance(output, Tensor) else next(iter(output.values()))
    return output if output.ndim == 0 else output.float().square().mean()


def train(
    make: Any, dtype: torch.dtype | None, plant: Planted | None, dropout: bool, seed: int, steps: int
) -> None:
    """Train for some steps, under autocast where there is a dtype."""
    built = architectures.build(make)
    model = built.model.train() if dropout else without_dropout(built.model)
    if plant is not None:
        plant(model)
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        backward(built, dtype)
        optimizer.step()


def without_dropout(model: nn.Module) -> nn.Module:
    for module in model.train().modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    return model


def backward(built: architectures.Architecture, dtype: torch.dtype | None) -> Tensor:
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = loss_of(built.model(*built.args, **built.kwargs))
    loss.backward()
    return loss


def recorded(
    make: Any,
    dtype: torch.dtype | None = None,
    plant: Planted | None = None,
    nudge: audit.Nudge | None = None,
    dropout: bool = False,
    seed: int = 0,
    steps: int = 3,
) -> Recording:
    with audit.recording(steps=steps, every=None, nudged_by=nudge) as run:
        train(make, dtype, plant, dropout, seed, steps)
    assert not [each for each in run.recording.not_seen if "trouble" in each]
    return run.recording


def stepped(model: nn.Module, nudge: audit.Nudge | None = None) -> Recording:
    """Record one step of a small model, on the numbers that are drawn next."""
    optimizer = torch.optim.SGD(model.parameters())
    with audit.recording(model, nudged_by=nudge) as seen:
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
    return seen.recording


def nudged(make: Any, a: Recording, b: Recording, dtype: torch.dtype | None = None) -> Recording:
    return recorded(make, dtype, nudge=audit.Nudge.between(a, b))


# --- what is planted


def _replaced(module: nn.Module, forward: Callable[..., Any]) -> None:
    module.forward = partial(forward, module.forward)


def a_cast(module: nn.Module) -> None:
    """Round what the module returns to bf16, and return it in its own dtype."""
    _replaced(module, lambda own, *a, **k: _mapped(own(*a, **k), lambda y: y.bfloat16().to(y.dtype)))


def its_dtype(module: nn.Module) -> None:
    """Compute the module in the other format: in fp32 under autocast, in bf16 without it."""

    def forward(own: Any, x: Tensor) -> Any:
        if torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return own(x.float())
        weights = {name: weight.bfloat16() for name, weight in module.named_parameters()}
        return functional_call(module, own, weights, x.bfloat16()).to(x.dtype)

    _replaced(module, forward)


def functional_call(module: nn.Module, own: Any, weights: dict[str, Tensor], *args: Any) -> Any:
    """Call the module's own forward with other weights."""
    original = {name: module._parameters[name] for name in weights}
    try:
        for name, weight in weights.items():
            del module._parameters[name]
            setattr(module, name, weight)
        return own(*args)
    finally:
        for name, parameter in original.items():
            delattr(module, name)
            module._parameters[name] = parameter


def its_eps(module: nn.Module) -> None:
    """Change what a normalization adds to the variance."""
    module.eps = 1e-3


def a_wrong_weight(module: nn.Module) -> None:
    """Change one weight of many by a tenth."""
    with torch.no_grad():
        module.weight.view(-1)[module.weight.numel() // 2] += 0.1


def another_order(module: nn.Module) -> None:
    """Add up the products of a linear layer from the other end."""

    def forward(own: Any, x: Tensor) -> Tensor:
        return functional.linear(x.flip(-1), module.weight.flip(-1), module.bias)

    _replaced(module, forward)


def another_kernel(module: nn.Module) -> None:
    """Compute a linear layer by another kernel: products and a sum, and no matrix product."""

    def forward(own: Any, x: Tensor) -> Tensor:
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        products = x.to(dtype).unsqueeze(-2) * module.weight.to(dtype)
        summed = products.float().cumsum(-1)[..., -1].to(dtype)
        return summed if module.bias is None else summed + module.bias.to(dtype)

    _replaced(module, forward)


def _mapped(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, change, output)


NORMALIZATIONS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d)
KINDS: dict[Planted, tuple[type, ...]] = {
    its_dtype: (nn.Linear, nn.Conv2d),
    a_cast: (nn.Linear, nn.Conv2d, nn.GELU, nn.ReLU, nn.Tanh, *NORMALIZATIONS),
    its_eps: NORMALIZATIONS,
    a_wrong_weight: (nn.Linear, nn.Conv2d, nn.Embedding),
    another_order: (nn.Linear,),
    another_kernel: (nn.Linear,),
}


@cache
def calls(make: Any, precision: str) -> Recording:
    return recorded(make, PRECISIONS[precision])


def cases() -> Iterator[tuple[Any, Planted, str, str]]:
    """Yield an architecture, what is planted, the module, and the precision, where that changes a number."""
    for make, (plant, kinds), precision in product(SIX, KINDS.items(), PRECISIONS):
        for name in called(make, kinds, precision):
            if not does_nothing(make, plant, name, precision):
                yield make, plant, name, precision


def called(make: Any, kinds: tuple[type, ...], precision: str) -> list[str]:
    """Name the modules of some kinds that are called; MultiheadAttention never calls its own projection."""
    seen = {call.module for call in calls(make, precision).calls if call.step == 0}
    model = architectures.build(make).model
    return [name for name, module in model.named_modules() if type(module) in kinds and name in seen]


def does_nothing(make: Any, plant: Planted, name: str, precision: str) -> bool:
    """Whether what is planted changes no number, such as a cast of what is in bf16 already."""
    call = next(each for each in calls(make, precision).calls if each.module == name and each.step == 0)
    dtype = calls(make, precision).values[next(iter(call.outputs.values()))].dtype
    if plant is a_cast and dtype == "bfloat16":
        return True
    built = architectures.build(make)
    return plant is another_order and built.model.get_submodule(name).weight.shape[-1] < 3


def found_at(make: Any, plant: Planted, name: str, precision: str) -> tuple[bool, audit.Comparison]:
    """Say whether the place where the runs part is the module into which something was planted."""
    a, dtype = calls(make, precision), PRECISIONS[precision]
    b = recorded(make, dtype, lambda model: plant(model.get_submodule(name)))
    comparison = audit.compare(a, b)
    parted = comparison.parted
    if parted is None:
        return same_numbers(make, dtype, plant, name), comparison
    tied = isinstance(architectures.build(make).model.get_submodule(name), nn.Embedding)
    return parted.module == name or (tied and parted.phase == "weights"), comparison


def same_numbers(make: Any, dtype: torch.dtype | None, plant: Planted, name: str) -> bool:
    """Whether all gradients are bit for bit the same with what was planted: then there is nothing to find."""

    def gradients(planted: bool) -> list[Tensor]:
        built = architectures.build(make)
        without_dropout(built.model)
        if planted:
            plant(built.model.get_submodule(name))
        loss = backward(built, dtype)
        return [loss, *(p.grad for p in built.model.parameters() if p.grad is not None)]

    return all(torch.equal(one, other) for one, other in zip(gradients(True), gradients(False), strict=True))


ROUNDS = (another_order, another_kernel)  # what is planted so is no more than rounding


@pytest.mark.thorough
def test_what_is_planted_is_found_at_its_module_in_at_least_95_percent():
    found, judged = [], []
    for case in cases():
        right, comparison = found_at(*case)
        if comparison.parted is None and right:
            continue  # all numbers are the same, bit for bit
        found.append((right, case, comparison.parted))
        if case[-1] == "fp32":
            judged.append((judged_rightly(*case[1:3], comparison), case, comparison.first))
    for tried, least in ((found, 150), (judged, 100)):
        wrong = [each for each in tried if not each[0]]
        print(f"[computed] {len(tried) - len(wrong)} of {len(tried)} are right", *wrong, sep="\n")
        assert len(tried) > least
        assert len(wrong) <= 0.05 * len(tried), wrong


def judged_rightly(plant: Planted, name: str, comparison: audit.Comparison) -> bool:
    """Say whether what is more than rounding is called so, at its place, and what is rounding is not."""
    if plant in ROUNDS or comparison.parted is None:
        return comparison.first is None
    tied = comparison.first is not None and comparison.first.phase == "weights"
    return comparison.first is not None and (comparison.first.module == name or tied)


QUICK = [
    (architectures.mlp, a_cast, "1", "fp32"),
    (architectures.mlp, its_dtype, "4", "bf16"),
    (architectures.convnet, its_eps, "5", "fp32"),
    (architectures.residual, a_wrong_weight, "1.body.2", "fp32"),
    (architectures.mlp, another_order, "4", "fp32"),
    (architectures.transformer, another_kernel, "decoder.layers.0.linear1", "bf16"),
]


@pytest.mark.parametrize(("make", "plant", "name", "precision"), QUICK)
def test_what_is_planted_is_found(make, plant, name, precision):
    found, comparison = found_at(make, plant, name, precision)
    assert found
    assert comparison.parted.step == 0
    if precision == "fp32":
        assert judged_rightly(plant, name, comparison)


@pytest.mark.few
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("make", SIX)
def test_the_same_run_is_never_reported_with_dropout_and_batch_statistics(make, precision):
    runs = [recorded(make, PRECISIONS[precision], dropout=True) for _ in range(2)]
    moved = recorded(make, PRECISIONS[precision], dropout=True, nudge=audit.Nudge.between(*runs))
    for noise in (None, moved):
        comparison = audit.compare(*runs, noise)
        assert (comparison.parted, comparison.first, comparison.obstacle) == (None, None, "")
        assert all(step.output is None or step.output.difference == 0 for step in comparison.by_step)


@pytest.mark.few
@pytest.mark.parametrize("make", [*SIX, *OF_TRANSFORMERS])
def test_what_bf16_autocast_does_to_a_healthy_model_is_what_it_explains(make):
    a, b = recorded(make), recorded(make, torch.bfloat16)
    for noise in (nudged(make, a, b), None):
        comparison = audit.compare(a, b, noise)
        assert comparison.first is None, str(comparison)
        assert comparison.parted.formats == ("float32", "bfloat16")
        assert "no further than their formats explain" in str(comparison)


@pytest.mark.few
@pytest.mark.parametrize("make", SIX)
def test_ten_steps_are_explained_by_three_that_were_nudged(make):
    a, b = (recorded(make, dtype, steps=10) for dtype in (None, torch.bfloat16))
    comparison = audit.compare(a, b, nudged(make, a, b))
    assert comparison.first is None, str(comparison)
    compared = [each.step for each in comparison.by_step if each.output is not None]
    floored = [each.step for each in comparison.by_step if each.output and each.output.floor is not None]
    assert (compared, floored) == ([0, 1, 2, 4, 8], [0, 1, 2])
    assert "in 3 steps; in those after it" in " ".join(str(comparison).split())


@pytest.mark.parametrize(("wrong_from", "found_in"), [(0, 0), (3, 4)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_across_formats_a_module_that_is_wrong_is_found_at_the_next_step_that_is_recorded(
    precision, wrong_from, found_in
):
    """Half of what a module returns is lost in the second run, which is in bf16 too, or alone."""

    def plant(model: nn.Module) -> None:
        calls = count()
        lose = lambda own, x: own(x) * (1.0 if next(calls) < wrong_from else 0.5)  # noqa: E731
        _replaced(model.get_submodule("1.body.1"), lose)

    a = recorded(architectures.residual, PRECISIONS[precision], steps=6)
    b = recorded(architectures.residual, torch.bfloat16, plant, steps=6)
    first = audit.compare(a, b, nudged(architectures.residual, a, b, PRECISIONS[precision])).first
    assert (first.module, first.phase, first.step) == ("1.body.1", "forward", found_in)


@pytest.mark.parametrize("make", [architectures.mlp, architectures.transformer])
def test_a_nudged_run_is_about_twice_as_far_off_as_rounding(make):
    a, b = recorded(make), recorded(make, torch.bfloat16)
    comparison = audit.compare(a, b, nudged(make, a, b))
    ratios = [
        each.noise_floor / each.difference for each in comparison.by_module.values() if each.difference > 0
    ]
    assert ratios
    assert 1 < sorted(ratios)[len(ratios) // 2] < 6


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_compiled_model_is_compared_by_what_can_be_seen_of_it(precision):
    def run(compiled: bool, wrong: bool = False) -> Recording:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(8, 16), nn.LayerNorm(16, eps=1e-2 if wrong else 1e-5), nn.Linear(16, 4)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch._dynamo.reset()
        runs = torch.compile(model, backend="aot_eager") if compiled else model
        with audit.recording(model, steps=2) as seen:
            for _ in range(2):
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    loss = runs(torch.randn(4, 8)).float().square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return seen.recording

    comparison = audit.compare(run(False), run(True))
    assert (comparison.first, comparison.obstacle) == (None, "")
    assert comparison.by_step[0].output is not None
    assert comparison.by_step[0].gradient is not None
    assert any("compiled code" in each for each in comparison.notes)
    first = audit.compare(run(False), run(True, wrong=True)).first
    assert first is None if precision == "bf16" else first.module == "Sequential"


def test_code_between_modules_is_blamed_on_the_module_it_stands_in():
    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.one, self.other, self.scale = nn.Linear(4, 4), nn.Linear(4, 4), scale

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.one(x) * self.scale)

    def run(scale: float) -> Recording:
        torch.manual_seed(0)
        return stepped(nn.Sequential(nn.Linear(4, 4), Scaled(scale)))

    comparison = audit.compare(run(1.0), run(1.01))
    assert (comparison.first.module, comparison.first.what) == ("1", "input 0 of 1.other")
    assert comparison.first.difference == pytest.approx(0.01, rel=0.05)


def test_a_gradient_that_is_wrong_is_found_in_the_backward_pass():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            ctx.factor = factor
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
            return gradient * ctx.factor, None

    class Doubling(nn.Module):
        factor = 2.0

        def forward(self, x: Tensor) -> Tensor:
            return Wrong.apply(x, self.factor)

    def run(factor: float) -> Recording:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), Doubling(), nn.Tanh(), nn.Linear(4, 2))
        model[1].factor = factor
        return stepped(model)

    comparison = audit.compare(run(2.0), run(2.1))
    assert (comparison.first.module, comparison.first.phase) == ("1", "backward")


def test_other_batches_other_weights_and_other_models_are_told_from_rounding():
    a = recorded(architectures.mlp)
    other_dropout = recorded(architectures.mlp, dropout=True, seed=1)
    assert audit.compare(a, other_dropout).first.module == "3"  # the dropout

    assert (
        audit.compare(a, recorded(architectures.convnet)).notes[0].startswith("only the second run has `5`")
    )

    def batch(seed: int) -> Recording:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4))
        torch.manual_seed(seed)
        return stepped(model)

    first = audit.compare(batch(1), batch(2)).first
    assert (first.phase, first.module, first.step) == ("input", "Sequential", 0)


def test_a_script_that_draws_other_numbers_each_time_cannot_be_compared():
    def run(nudge: audit.Nudge | None = None) -> Recording:
        return stepped(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nudge)

    a, b = run(), run()
    comparison = audit.compare(a, b, run(audit.Nudge.between(a, b)))
    assert "does not repeat itself" in comparison.obstacle
    assert not comparison.as_explained


def test_a_nudge_moves_no_further_than_rounding_and_leaves_ranges_and_random_numbers_alone():
    nudge = audit.Nudge({0: ["bfloat16"]})
    tensor = torch.cat([torch.rand(10_000), torch.tensor([0.0, 1.0])])
    state = torch.get_rng_state()
    moved = nudge.nudged(tensor, 0, 0)
    assert torch.equal(torch.get_rng_state(), state)
    relative = (moved - tensor).abs() / tensor.clamp_min(1e-30)
    assert 0.3 * 2**-7 < float(relative.max()) <= 2**-7 * 1.01  # eps of bf16
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    extremes = torch.tensor([torch.inf, -torch.inf, torch.finfo(torch.float32).max, torch.nan, 0.0])
    assert torch.equal(nudge.nudged(extremes, 0, 0).isfinite(), extremes.isfinite())
    assert torch.equal(nudge.nudged(torch.arange(3), 0, 0), torch.arange(3))
    low = torch.rand(1000).bfloat16()
    assert 0.1 < float((nudge.nudged(low, 0, 0) != low).float().mean()) < 0.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nudged_gradient_is_nudged_by_the_same_and_can_be_differentiated_again(dtype):
    nudge = audit.Nudge({0: [str(dtype).removeprefix("torch.")]})
    tensor = torch.linspace(1.0, 2.0, 50).to(dtype).requires_grad_()
    moved = nudge.nudged(tensor, 0, 0)
    (gradient,) = torch.autograd.grad(moved.pow(3).sum(), tensor, create_graph=True)
    inner = slice(1, -1)  # the least and the most stay where they are
    factor = (moved.detach().double() / tensor.detach().double())[inner]
    expected = 3 * moved.detach().double()[inner] ** 2 * factor
    torch.testing.assert_close(gradient.detach().double()[inner], expected, rtol=2e-2, atol=0)
    (second,) = torch.autograd.grad(gradient.sum(), tensor)
    torch.testing.assert_close(second, 6 * tensor.detach(), rtol=5e-2, atol=0)
