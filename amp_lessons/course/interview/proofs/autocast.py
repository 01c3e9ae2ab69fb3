"""Proofs of the answers about autocast."""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import autocast, formats
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _step


def _cuda(dtype: torch.dtype = torch.float16) -> Any:
    """CUDA's autocast rules, for tensors on the CPU."""
    return autocast.region("cuda", dtype)


def _refusal(call: Callable[[], object]) -> str:
    """What PyTorch says against a call; nothing where it makes it."""
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return ""


def what_it_does() -> None:
    """Use autocast without a scaler, and a scaler without autocast, which skips a step of inf."""
    layer, inputs = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(inputs)
    assert output.dtype == torch.bfloat16
    F.mse_loss(output.float(), inputs).backward()  # no scaler anywhere
    assert layer.weight.grad is not None
    assert layer.weight.grad.count_nonzero() == 64

    optimizer, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), _scaler()
    before, scale = layer.weight.clone(), scaler.get_scale()
    scaler.scale(math.inf * layer(inputs).sum()).backward()  # no autocast anywhere
    scaler.step(optimizer)
    assert torch.equal(layer.weight, before)


def dtypes() -> None:
    """Ask for every dtype in a step under bf16 autocast, by CUDA's rules."""
    layer = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    with _cuda(torch.bfloat16):
        output = layer(torch.randn(16, 8))
        loss = F.cross_entropy(output, torch.randint(4, (16,)))
    loss.backward()
    optimizer.step()
    assert layer.weight.grad is not None
    assert optimizer.state[layer.weight]["exp_avg"].dtype == torch.float32
    assert output.dtype == torch.bfloat16
    assert {each.dtype for each in (loss, layer.weight, layer.weight.grad)} == {torch.float32}


def where_it_ends() -> None:
    """Compute a loss of 16-bit outputs inside autocast and outside of it, by CUDA's rules."""
    layer, inputs, targets = nn.Linear(64, 10), torch.randn(32, 64), torch.randint(10, (32,))
    with _cuda():
        output = layer(inputs)
        inside = F.cross_entropy(output, targets)
    outside = F.cross_entropy(output, targets)
    assert (inside.dtype, outside.dtype) == (torch.float32, torch.float16)
    scale = _scaler().get_scale()
    for loss, fits in ((outside, False), (inside, True)):
        (gradient,) = torch.autograd.grad(loss * scale, output, retain_graph=True)
        assert gradient.isfinite().all() == fits


def lists() -> None:
    """Read CUDA's lists from PyTorch, and ask a product what autograd recorded."""
    rules = autocast.policy("cuda")
    lower = {name.partition(".")[0] for name, rule in rules.items() if rule.name == "LOWER_PRECISION"}
    wide = {name.partition(".")[0] for name, rule in rules.items() if rule.name.startswith("FP32")}
    assert {"aten::linear", "aten::conv2d", "aten::scaled_dot_product_attention"} <= lower
    assert {"aten::exp", "aten::layer_norm", "aten::softmax", "aten::sum", "aten::nll_loss"} <= wide
    unlisted = {"aten::add", "aten::mul", "aten::relu", "aten::batch_norm", "aten::mean"}
    assert not unlisted & {name.partition(".")[0] for name in rules}
    weight = nn.Parameter(torch.ones(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        product: Any = torch.ones(4, 4) @ weight
    assert product.grad_fn.next_functions[1][0].name() == "ToCopyBackward0"  # the cast, before the product


def cpu_cuda() -> None:
    """Ask both devices about the operations that are said to run in fp32."""
    said = {"softmax.int", "layer_norm", "group_norm", "exp", "log", "pow.Tensor_Scalar", "sum"}
    cuda, cpu = autocast.policy("cuda"), autocast.policy("cpu")
    assert all(cuda[f"aten::{name}"].name.startswith("FP32") for name in said)
    assert not any(f"aten::{name}" in cpu for name in said)
    half = torch.ones(4, 4).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert F.layer_norm(half, (4,)).dtype == torch.bfloat16


def bce() -> None:
    """Look at the gradient of a binary cross-entropy near certainty, of a probability and of a logit."""
    logit = torch.tensor(14.0, requires_grad=True)
    wrong, right = torch.zeros(()), torch.ones(())
    probability = logit.sigmoid()
    (by_probability,) = torch.autograd.grad(F.binary_cross_entropy(probability, wrong), probability)
    assert by_probability.half().isinf()

    half = torch.tensor(-12.0).sigmoid().half().requires_grad_()
    (handed_back,) = torch.autograd.grad(F.binary_cross_entropy(half.float(), right), half)
    assert handed_back.isinf()  # though the loss itself was fp32

    (by_logit,) = torch.autograd.grad(F.binary_cross_entropy_with_logits(logit, wrong), logit)
    assert torch.isclose(by_logit, logit.sigmoid() - wrong)
    largest = torch.finfo(torch.float16).max


def batch_norm() -> None:
    """Give a batch norm 16-bit inputs under CUDA's rules, and ask what it returns and what it keeps."""
    layer, inputs = nn.BatchNorm1d(4), torch.ones(8, 4).half()
    with _cuda():
        assert layer(inputs).dtype == torch.float16
        others = F.layer_norm(inputs, (4,)), F.group_norm(inputs, 2)
    assert {each.dtype for each in others} == {torch.float32}
    assert {layer.state_dict()[name].dtype for name in ("weight", "running_mean")} == {torch.float32}


def _losses(steps: int, one_context: bool) -> list[float]:
    """Train under autocast in so many steps, perhaps all of them in one more context; return their losses."""
    torch.manual_seed(0)
    layer, inputs, losses = nn.Linear(8, 1), torch.randn(32, 8), []
    before, optimizer = layer.weight.detach().clone(), torch.optim.SGD(layer.parameters(), lr=0.1)
    with torch.autocast("cpu", torch.bfloat16) if one_context else contextlib.nullcontext():
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(layer(inputs), inputs[:, :1])
            _step(optimizer, loss)
            losses.append(loss.item())
    assert not torch.equal(before, layer.weight)
    return losses


def cache() -> None:
    """Train inside one long autocast context, and inside one per step."""
    stale, right = (_losses(20, one_context) for one_context in (True, False))
    assert len(set(stale)) == 1  # every forward uses the copies of the first
    assert right[-1] < right[0] / 2
    assert "cache_enabled=False" in inspect.getsource(torch.cuda.make_graphed_callables)  # what it asks for


def hand_written() -> None:
    """Square and average by hand, twice, and run both and PyTorch's layer norm by CUDA's rules."""
    value = 300
    hidden = torch.full((2, 8), float(value)).half()
    with _cuda():
        product = (hidden * hidden).mean(-1)
        power = hidden.pow(2).mean(-1)
        module = F.layer_norm(hidden, (8,))
    assert product.isinf().all()
    assert (product.dtype, power.dtype, module.dtype) == (torch.float16, torch.float32, torch.float32)


def island() -> None:
    """Keep a product out of autocast, without and with casting its inputs."""
    hidden, weight = torch.randn(8, 8).half(), torch.randn(8, 8)
    with torch.autocast("cpu", torch.float16):
        cast_only = hidden.float() @ weight  # casting the input is not enough
        with torch.autocast("cpu", enabled=False):
            inside = hidden.float() @ weight
            refusal = _refusal(lambda: hidden @ weight)
    assert (cast_only.dtype, inside.dtype) == (torch.float16, torch.float32)
    assert "dtype" in refusal


def backward_inside() -> None:
    """Run backward inside and outside autocast: for a plain model, and for one with an fp32 island."""

    def gradients(inside: bool, island: bool) -> Tensor:
        torch.manual_seed(0)
        first, second = nn.Linear(64, 64), nn.Linear(64, 1)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = first(torch.randn(32, 64))
            with torch.autocast("cpu", torch.bfloat16, enabled=not island):
                loss = second(hidden.float() if island else hidden).float().square().mean()
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            loss.backward()
        weights = (first.weight, second.weight)
        return torch.cat([w.grad.flatten() for w in weights if w.grad is not None])

    assert torch.equal(gradients(True, False), gradients(False, False))
    difference = formats.relative_error(gradients(True, True), gradients(False, True))
    assert 1e-4 < difference < 1e-2


def threads() -> None:
    """Multiply inside autocast, in the thread that entered it and in another one."""
    found: dict[str, torch.dtype] = {}
    ones = torch.ones(4, 4)

    def multiply(name: str) -> None:
        found[name] = (ones @ ones).dtype

    with torch.autocast("cpu", torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("error")  # and nothing warns
        multiply("here")
        worker = threading.Thread(target=multiply, args=("there",))
        worker.start()
        worker.join()
    assert found == {"here": torch.bfloat16, "there": torch.float32}


def custom_function() -> None:
    """Multiply in an autograd function, without and with PyTorch's decorators, and in an operator."""

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad

    class Decorated(torch.autograd.Function):
        forward = staticmethod(torch.amp.custom_fwd(Plain.forward, device_type="cpu"))
        backward = staticmethod(torch.amp.custom_bwd(Plain.backward, device_type="cpu"))

    def backward_of(function: Any) -> str:
        x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = function.apply(x, w).float().sum()
        return _refusal(loss.backward)

    assert "dtype" in backward_of(Plain)
    assert backward_of(Decorated) == ""

    cast = torch.amp.custom_fwd(Plain.forward, device_type="cpu", cast_inputs=torch.float32)
    context = SimpleNamespace(save_for_backward=lambda *_: None)
    half, w = torch.ones(4, 4, dtype=torch.bfloat16), torch.ones(4, 4)
    assert cast(context, half, half).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert cast(context, half, half).dtype == torch.float32

    got: list[torch.dtype] = []

    @torch.library.custom_op("amp_lessons_proof::product", mutates_args=())
    def product(x: Tensor, w: Tensor) -> Tensor:
        got.append(w.dtype)
        return x.to(w.dtype) @ w

    with torch.autocast("cpu", torch.bfloat16):
        product(half, w)
        torch.library.register_autocast("amp_lessons_proof::product", "cpu", torch.bfloat16)
        product(half, w)
    assert got == [torch.float32, torch.bfloat16]


def not_eligible() -> None:
    """Find what autocast leaves alone: float64, what has a tensor to fill, another device."""
    double, single, result = torch.ones(4, 4, dtype=torch.float64), torch.ones(4, 4), torch.zeros(4, 4)
    mask = torch.tensor([True, False, True, False])
    with torch.autocast("cpu", torch.bfloat16):
        assert (double @ double).dtype == torch.float64
        assert result.addmm_(single, single).dtype == torch.float32
        assert torch.mm(single, single, out=result).dtype == torch.float32
        product = single[mask] @ single
        assert product.dtype == torch.bfloat16
        result[:2] = product  # a slice: copy_ casts
        assert "dtype" in _refusal(lambda: result.__setitem__(mask, product))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autocast("cuda", torch.bfloat16):
            assert (single @ single).dtype == torch.float32
