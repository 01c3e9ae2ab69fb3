"""Proofs of the answers about autocast."""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
import threading
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import autocast, formats


def _cuda(dtype: torch.dtype = torch.float16) -> Any:
    """CUDA's autocast rules, for tensors on the CPU."""
    return autocast.region("cuda", dtype)


def _refusal(call: Callable[[], object]) -> str:
    """What PyTorch says against a call; nothing where it makes it."""
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return ""


def what_it_does() -> dict[str, object]:
    """Use autocast without a scaler, and a scaler without autocast, which steps as if there were none."""
    layer, inputs = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(inputs)
        loss = F.mse_loss(output, inputs)
    assert (output.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    assert layer.weight.dtype == torch.float32
    loss.backward()  # no scaler anywhere
    assert layer.weight.grad is not None
    assert layer.weight.grad.count_nonzero() == 64

    plain, scaler = copy.deepcopy(layer), torch.amp.GradScaler("cpu")
    first = scaler.get_scale()
    for model, scale in ((plain, None), (layer, scaler)):  # no autocast anywhere
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs), inputs)
        (scale.scale(loss) if scale else loss).backward()
        scale.step(optimizer) if scale else optimizer.step()
    scaler.update()
    assert torch.equal(layer.weight, plain.weight)  # multiplied, divided again: of no use in fp32

    def by_fp16(scale: float) -> torch.Tensor:
        """Return the gradient of fp32 weights that are cast to fp16 without autocast, as FSDP2 casts them."""
        computed = F.linear(inputs.half(), layer.weight.half())
        loss = 1e-8 * computed.float().square().mean()
        return torch.autograd.grad(scale * loss, layer.weight)[0]

    assert by_fp16(1).count_nonzero() == 0
    assert by_fp16(first).count_nonzero() == 64

    layer.weight.grad.fill_(torch.inf)
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(layer.weight, plain.weight)  # skipped
    assert scaler.get_scale() == first / 2
    return {"output": str(output.dtype).removeprefix("torch."), "scale": f"{first:.0f}"}


def dtypes() -> dict[str, object]:
    """Ask for every dtype in a step under bf16 autocast, by CUDA's rules, and for its bytes without."""
    inputs, targets = torch.randn(16, 8), torch.randint(4, (16,))

    def step(context: Any) -> tuple[nn.Linear, Tensor, Tensor, dict[str, Tensor]]:
        """Make one step in a context; return the layer, its output, the loss and the weight's state."""
        layer = nn.Linear(8, 4)
        optimizer = torch.optim.AdamW(layer.parameters())
        with context:
            output = layer(inputs)
            loss = F.cross_entropy(output, targets)
        output.retain_grad()
        loss.backward()
        optimizer.step()
        return layer, output, loss, optimizer.state[layer.weight]

    layer, output, loss, state = step(_cuda(torch.bfloat16))
    rules = autocast.policy("cuda")
    assert rules["aten::linear"] is autocast.Policy.LOWER_PRECISION
    assert rules["aten::nll_loss"] is rules["aten::mse_loss"] is autocast.Policy.FP32
    assert layer.weight.grad is not None
    found = [output, loss, layer.weight, layer.weight.grad, state["exp_avg"], state["exp_avg_sq"]]
    assert [each.dtype for each in found] == [torch.bfloat16, *[torch.float32] * 5]
    assert output.grad is not None
    assert output.grad.dtype == torch.bfloat16  # that of an activation, on its way
    with torch.autocast("cpu", torch.bfloat16):
        product: Any = inputs @ layer.weight.t()
    assert product.grad_fn._saved_self.dtype == torch.bfloat16  # copies are multiplied,
    assert "ToCopyBackward" in str(product.grad_fn.next_functions[1][0])  # whose backward casts to fp32 again

    def kept(layer: nn.Linear, output: Tensor, loss: Tensor, state: dict[str, Tensor]) -> int:
        assert layer.weight.grad is not None
        return sum(each.nbytes for each in (layer.weight, layer.weight.grad, *state.values()))

    assert kept(layer, output, loss, state) == kept(*step(contextlib.nullcontext()))  # nothing is saved
    return {
        name: str(each.dtype).removeprefix("torch.").replace("bfloat", "bf").replace("float", "fp")
        for name, each in zip(("output", "loss", "weight", "gradient"), found[:4], strict=True)
    }


def where_it_ends() -> dict[str, object]:
    """Compute a loss of 16-bit outputs inside autocast and outside of it, by CUDA's rules."""
    layer, inputs, targets = nn.Linear(64, 10), torch.randn(32, 64), torch.randint(10, (32,))
    with _cuda():
        output = layer(inputs)
        inside = F.cross_entropy(output, targets)
    outside = F.cross_entropy(output, targets)
    assert (inside.dtype, outside.dtype) == (torch.float32, torch.float16)
    scale = torch.amp.GradScaler("cpu").get_scale()
    (gradient,) = torch.autograd.grad(outside * scale, output, retain_graph=True)
    assert not gradient.isfinite().all()
    (gradient,) = torch.autograd.grad(inside * scale, output)  # outside of autocast
    assert gradient.isfinite().all()
    assert gradient.dtype == torch.float16  # that of the forward
    with _cuda():
        before = layer(inputs)
        with torch.no_grad():
            layer.weight.zero_()
        stale = layer(inputs)
    assert torch.equal(stale, before)
    with _cuda():
        assert not torch.equal(layer(inputs), before)  # leaving it has cleared the cache
    return {"inside": "fp32", "outside": "fp16", "scale": f"{scale:.0f}"}


def lists() -> dict[str, object]:
    """Read CUDA's lists from PyTorch, and run an operation of each."""
    rules = autocast.policy("cuda")
    lower = {name.partition(".")[0] for name, rule in rules.items() if rule.name == "LOWER_PRECISION"}
    wide = {name.partition(".")[0] for name, rule in rules.items() if rule.name.startswith("FP32")}
    assert {"aten::linear", "aten::conv2d", "aten::scaled_dot_product_attention"} <= lower
    assert {"aten::exp", "aten::layer_norm", "aten::softmax", "aten::sum", "aten::nll_loss"} <= wide
    assert rules["aten::addcmul"] is autocast.Policy.PROMOTE
    assert [name for name, rule in rules.items() if rule is autocast.Policy.BANNED] == [
        "aten::binary_cross_entropy"
    ]
    unlisted = {"aten::add", "aten::mul", "aten::relu", "aten::batch_norm", "aten::mean"}
    assert not unlisted & {name.partition(".")[0] for name in rules}
    half, single = torch.ones(4, 4).half(), torch.ones(4, 4)
    with _cuda():
        assert (single @ single).dtype == torch.float16
        assert half.softmax(0).dtype == torch.float32
        assert torch.addcmul(half, single, half).dtype == torch.float32
        assert half.relu().dtype == torch.float16
        assert single.relu().dtype == torch.float32
        overflowing = (300 * single) @ (300 * single)
        assert (half + half.bfloat16()).dtype == torch.float32
        assert (half + 0.5).dtype == (half + torch.tensor(0.5)).dtype == torch.float16
    assert overflowing.dtype == torch.float16  # cast down, although
    assert overflowing.isinf().all()
    # It comes before autograd, which sees each cast: its backward hands the weight's gradient to fp32
    weight = nn.Parameter(torch.ones(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        step: Any = (single @ weight).grad_fn
    casts = step.next_functions[1][0]
    assert (casts.name(), casts.next_functions[0][0].variable is weight) == ("ToCopyBackward0", True)
    assert torch.autograd.grad((half.float() @ weight).sum(), weight)[0].dtype == torch.float32
    return {}


def cpu_cuda() -> dict[str, object]:
    """Ask both devices about the operations that are said to run in fp32."""
    said = {"softmax.int", "layer_norm", "group_norm", "exp", "log", "pow.Tensor_Scalar", "sum"}
    cuda, cpu = autocast.policy("cuda"), autocast.policy("cpu")
    assert all(cuda[f"aten::{name}"].name.startswith("FP32") for name in said)
    assert not any(f"aten::{name}" in cpu for name in said)
    half = torch.ones(4, 4).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        on_cpu = F.layer_norm(half, (4,)).dtype
        probability = torch.full((4,), 0.5)
        F.binary_cross_entropy(probability, probability)  # allowed here
    with _cuda(torch.bfloat16):
        on_cuda = F.layer_norm(half, (4,)).dtype
        refused = _refusal(lambda: F.binary_cross_entropy(probability, probability))
    assert "unsafe to autocast" in refused
    assert (on_cpu, on_cuda) == (torch.bfloat16, torch.float32)
    return {"cpu": "bf16", "cuda": "fp32"}


def bce() -> dict[str, object]:
    """Look at the gradient of a binary cross-entropy near certainty, of a probability and of a logit."""
    assert autocast.policy("cuda")["aten::binary_cross_entropy"] is autocast.Policy.BANNED
    logit = torch.tensor(14.0, requires_grad=True)
    wrong, right = torch.zeros(()), torch.ones(())
    probability = logit.sigmoid()
    (by_probability,) = torch.autograd.grad(F.binary_cross_entropy(probability, wrong), probability)
    assert math.isclose(by_probability, 1 + math.exp(14), rel_tol=0.05)  # 1 / (1 - sigmoid)
    assert by_probability.half().isinf()
    assert probability.half() == 1  # and there log(1 - p) has nothing left

    half = torch.tensor(-12.0).sigmoid().half().requires_grad_()
    assert half > 0
    (handed_back,) = torch.autograd.grad(F.binary_cross_entropy(half.float(), right), half)
    assert handed_back.isinf()  # though the loss itself was fp32

    (by_logit,) = torch.autograd.grad(F.binary_cross_entropy_with_logits(logit, wrong), logit)
    assert torch.isclose(by_logit, logit.sigmoid() - wrong)
    logits = torch.linspace(-100, 100, 1001, requires_grad=True)
    for target in (0.0, 1.0):
        loss = F.binary_cross_entropy_with_logits(logits, torch.full((1001,), target), reduction="sum")
        assert torch.autograd.grad(loss, logits)[0].abs().max() <= 1
    assert F.binary_cross_entropy(wrong, right) == 100  # log(0) is clamped
    return {
        "logit": f"{logit.item():.0f}",
        "by_probability": f"{by_probability:.1e}",
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
    }


def batch_norm() -> dict[str, object]:
    """Give a batch norm 16-bit inputs under CUDA's rules, and ask what it does and what it keeps."""
    assert not any("batch_norm" in name for name in autocast.policy("cuda"))
    layer = nn.BatchNorm1d(4, momentum=1.0)
    many = torch.ones(5000, 4).half()  # whose running sum in fp16 would stop at 2048
    with _cuda():
        output = layer(many)
        others = [F.layer_norm(many, (4,)), F.group_norm(many, 2)]
    assert output.dtype == torch.float16
    assert [other.dtype for other in others] == [torch.float32] * 2
    assert layer.running_mean is not None
    kept = {layer.weight.dtype, layer.bias.dtype, layer.running_mean.dtype}
    assert kept == {torch.float32}
    assert (layer.running_mean == 1).all()
    assert layer.half().state_dict()["running_mean"].dtype == torch.float16
    return {"in_and_out": "fp16", "kept": "fp32"}


def cache() -> dict[str, object]:
    """Train inside one long autocast context, and inside one per step."""

    def losses(one_context: bool) -> tuple[list[float], Tensor]:
        """Return the loss of every step, and how far the weights have moved."""
        torch.manual_seed(0)
        layer, inputs = nn.Linear(8, 1), torch.randn(32, 8)
        start = layer.weight.detach().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        outer = torch.autocast("cpu", torch.bfloat16) if one_context else contextlib.nullcontext()
        seen = []
        with outer:
            for _ in range(20):
                with torch.autocast("cpu", torch.bfloat16):
                    loss = F.mse_loss(layer(inputs), inputs[:, :1])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        return seen, layer.weight.detach() - start

    (stale, moved), (right, _) = losses(True), losses(False)
    assert len(set(stale)) == 1  # every forward uses the copies of the first,
    assert moved.abs().min() > 0  # while the weights move on
    assert right[-1] < right[0] / 2

    def cast_once(tensor: Tensor) -> bool:
        """Multiply by a tensor twice, and ask whether both products saved one copy of it."""
        with torch.autocast("cpu", torch.bfloat16):
            products = [torch.ones(4, 4, requires_grad=True) @ tensor for _ in range(2)]
        saved = [product.grad_fn._saved_mat2 for product in products]  # type: ignore[union-attr]
        return saved[0].data_ptr() == saved[1].data_ptr()

    weight = nn.Parameter(torch.ones(4, 4))
    assert cast_once(weight)
    assert "cache_enabled=False" in inspect.getsource(torch.cuda.make_graphed_callables)  # what it asks for
    assert not cast_once(weight * 1)  # as any activation
    return {}


def hand_written() -> dict[str, object]:
    """Write an RMS norm by hand, twice, and run it and PyTorch's own by CUDA's rules."""
    hidden = torch.full((2, 8), 300.0).half()
    with _cuda():
        squares, total = hidden * hidden, hidden.sum()
        product = squares.mean(-1, keepdim=True)
        power = hidden.pow(2).mean(-1, keepdim=True)
        explicit = (hidden.float() * hidden.float()).mean(-1, keepdim=True)
        modules = F.rms_norm(hidden, (8,)), F.layer_norm(hidden, (8,))
    assert (squares.dtype, product.dtype) == (torch.float16, torch.float16)
    assert {each.dtype for each in (power, explicit, total, *modules)} == {torch.float32}
    assert squares.isinf().all()
    assert all(each.isfinite().all() for each in (power, explicit, *modules))
    return {"value": 300, "product": "inf", "power": f"{power[0].item():.0f}"}


def island() -> dict[str, object]:
    """Keep a product out of autocast, without and with casting its inputs."""
    hidden = torch.randn(8, 8).half()
    weight = torch.randn(8, 8)
    with torch.autocast("cpu", torch.float16):
        cast_only = hidden.float() @ weight  # casting the input is not enough
        elementwise = hidden.float() * weight  # here it is
        with torch.autocast("cpu", enabled=False):
            inside = hidden.float() @ weight
            still_half = hidden @ hidden
            refusal = _refusal(lambda: hidden @ weight)
    assert (cast_only.dtype, inside.dtype) == (torch.float16, torch.float32)
    assert (elementwise.dtype, still_half.dtype) == (torch.float32, torch.float16)
    assert "dtype" in refusal
    return {"without": "fp16", "with": "fp32"}


def backward_inside() -> dict[str, object]:
    """Run backward inside and outside autocast: for a plain model, and for one with an fp32 island."""

    class Products(TorchDispatchMode):
        """Keep the dtypes that matrices are multiplied in."""

        def __init__(self) -> None:
            super().__init__()
            self.dtypes: set[torch.dtype] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.mm.default:
                self.dtypes.add(args[0].dtype)
            return func(*args, **(kwargs or {}))

    def gradients(inside: bool, island: bool) -> tuple[Tensor, set[torch.dtype]]:
        """Return the gradients, and the dtypes of backward's products."""
        torch.manual_seed(0)
        first, second = nn.Linear(64, 64), nn.Linear(64, 1)
        inputs = torch.randn(32, 64)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = first(inputs)
            with torch.autocast("cpu", torch.bfloat16, enabled=not island):
                loss = second(hidden.float() if island else hidden).float().square().mean()
        with torch.autocast("cpu", torch.bfloat16, enabled=inside), Products() as products:
            loss.backward()
        weights = (first.weight, second.weight)
        return torch.cat([w.grad.flatten() for w in weights if w.grad is not None]), products.dtypes

    for inside in (True, False):
        assert gradients(inside, False)[1] == {torch.bfloat16}  # the dtype of the forward, either way
    assert torch.equal(gradients(True, False)[0], gradients(False, False)[0])
    (weakened, cast_down), (protected, as_forward) = gradients(True, True), gradients(False, True)
    assert as_forward == {torch.bfloat16, torch.float32}
    assert cast_down == {torch.bfloat16}  # the island is gone
    difference = formats.relative_error(weakened, protected)
    assert 1e-4 < difference < 1e-2
    return {}


def threads() -> dict[str, object]:
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
    # what DataParallel's threads do before they call a replica
    source = inspect.getsource(torch.nn.parallel.parallel_apply)
    handed_on = source[source.index("autocast(") :].split(")")[0]
    assert "enabled=" in handed_on
    assert "dtype" not in handed_on
    before, default = torch.get_autocast_dtype("cuda"), []
    torch.set_autocast_dtype("cuda", torch.bfloat16)  # as `with torch.autocast("cuda", torch.bfloat16)` does
    worker = threading.Thread(target=lambda: default.append(torch.get_autocast_dtype("cuda")))
    worker.start()
    worker.join()
    torch.set_autocast_dtype("cuda", before)
    assert default == [torch.float16]
    return {"here": "bf16", "there": "fp32", "default": "fp16"}


def custom_function() -> dict[str, object]:
    """Multiply in an autograd function of one's own, without and with PyTorch's two decorators."""
    seen: list[tuple[torch.dtype, torch.dtype, bool]] = []

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            seen.append((grad.dtype, w.dtype, torch.is_autocast_enabled("cpu")))
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
    assert seen == [(torch.bfloat16, torch.float32, on) for on in (False, True)]  # as autocast was in forward

    cast = torch.amp.custom_fwd(Plain.forward, device_type="cpu", cast_inputs=torch.float32)
    context = SimpleNamespace(save_for_backward=lambda *_: None)
    half = torch.ones(4, 4, dtype=torch.bfloat16)
    assert cast(context, half, half).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert cast(context, half, half).dtype == torch.float32

    # An operator of one's own, before and after autocast is told of it
    got: list[tuple[torch.dtype, torch.dtype]] = []
    factor_of_w = [1.0]

    @torch.library.custom_op("amp_lessons_proof::product", mutates_args=())
    def product(x: Tensor, w: Tensor) -> Tensor:
        got.append((x.dtype, w.dtype))
        return x.to(w.dtype) @ w

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return (grad @ w.t()).to(x.dtype), factor_of_w[0] * (x.to(w.dtype).t() @ grad)

    product.register_fake(lambda x, w: w.new_empty(x.shape[0], w.shape[1]))
    product.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )
    w = torch.ones(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        product(half, w)
    torch.library.register_autocast("amp_lessons_proof::product", "cpu", torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        product(half, w)
    product(half, w)
    mixed, alike = (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)
    assert got == [mixed, alike, mixed]
    exact = tuple(torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for factor, right in ((1.0, True), (2.0, False)):
        factor_of_w[0] = factor
        assert set(torch.library.opcheck(product, exact).values()) == {"SUCCESS"}  # it sees no wrong gradient
        assert torch.autograd.gradcheck(product, exact, raise_exception=False) == right
    return {"gradient": "bf16", "saved": "fp32", "inside": "fp32", "outside": "bf16"}


def not_eligible() -> dict[str, object]:
    """Find what autocast leaves alone: float64, what has a tensor to fill, another thread, another device."""
    double, single = torch.ones(4, 4, dtype=torch.float64), torch.ones(4, 4)
    result = torch.zeros(4, 4)
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        assert (double @ double).dtype == torch.float64
        assert (double @ double + single).relu().dtype == torch.float64
        assert "same dtype" in _refusal(lambda: nn.Linear(4, 4)(double @ double))
        assert (single @ single).dtype == torch.bfloat16
        assert result.addmm_(single, single).dtype == torch.float32
        assert torch.mm(single, single, out=result).dtype == torch.float32
        worker = threading.Thread(target=lambda: found.append((single @ single).dtype))
        worker.start()
        worker.join()
        with torch.autocast("cpu", enabled=False):
            found.append((single @ single).dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autocast("cuda", torch.bfloat16):
            found.append((single @ single).dtype)
    assert set(found) == {torch.float32}

    mask = torch.tensor([True, False, True, False])
    with torch.autocast("cpu", torch.bfloat16):
        product, rows = single[mask] @ single, mask.nonzero()[:, 0]
        assert product.dtype == torch.bfloat16
        result[:2] = product  # a slice: copy_ casts
        for fill in (
            lambda out: out.__setitem__(mask, product),
            lambda out: out.__setitem__(rows, product),
            lambda out: out.index_add_(0, rows, product),
            lambda out: out.scatter_(0, rows[:, None].expand(2, 4), product),
        ):
            refusal = _refusal(partial(fill, result))
            assert "dtype" in refusal or "scalar type" in refusal
            fill(torch.zeros_like(result, dtype=product.dtype))
    return {"sixty_four": "fp64", "in_place": "fp32", "product": "bf16"}
