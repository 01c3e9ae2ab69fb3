"""CUDA's rules on the CPU, against PyTorch's own lists and against casts written by hand."""

from __future__ import annotations

import itertools
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import autocast
from tests.autocast.pytorch_lists import cases, checker, lists

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
HALVES = [F16, BF16]
CUDA_LISTS = lists.AutocastTestLists("cpu")
CPU_LISTS = lists.AutocastCPUTestLists("cpu")
NO_CPU_KERNEL = {"cudnn_convolution", "cudnn_convolution_transpose"}
NAMESPACES = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg, "methods": None}


def runs(device_lists, kinds):
    """Make of each case in these lists what runs it through PyTorch's own checker, and in which kind."""
    for name, kind in kinds.items():
        options = {"device": "cpu", "module": NAMESPACES[name.partition("_")[0]]}
        for number, (operation, arguments, extra) in enumerate(cases(device_lists, name)):
            if operation not in NO_CPU_KERNEL:
                run = partial(
                    checker._run_autocast_outofplace, operation, arguments, **options, add_kwargs=extra
                )
                yield pytest.param(run, kind, id=f"{operation}-{name}-{number}")


OF_CUDA = {f"{name}_fp16": F16 for name in ("torch", "nn", "linalg", "methods")}
OF_CUDA |= {f"{name}_fp32": F32 for name in ("torch", "nn", "methods")} | {"torch_need_autocast_promote": F32}
OF_CPU = {"torch_16": "half", "nn_16": "half", "torch_fp32": "fp32", "nn_fp32": "fp32"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("run", "dtype"), list(runs(CUDA_LISTS, OF_CUDA)))
def test_pytorchs_own_cuda_cases_hold_on_the_cpu(run, dtype):
    with autocast.cuda_rules():
        run(run_as_type=dtype, amp_dtype=F16)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("run", "kind"), list(runs(CPU_LISTS, OF_CPU)))
def test_pytorchs_own_cpu_cases_hold_after_cuda_rules(run, kind, half):
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=half):
        torch.ones(2).softmax(0)
    run(run_as_type=half if kind == "half" else F32, amp_dtype=half)


@pytest.mark.parametrize("namespace", ["torch", "methods"])
def test_what_promotes_by_itself_still_does(namespace):
    run, options = checker._run_autocast_outofplace, {"module": NAMESPACES[namespace], "amp_dtype": F16}
    for operation, arguments, dtype in getattr(CUDA_LISTS, f"{namespace}_expect_builtin_promote"):
        if operation not in ("cat", "stack", "equal") and hasattr(torch.Tensor, operation):
            with autocast.cuda_rules():
                run(operation, arguments, F32, "cpu", out_type=dtype, **options)


def test_banned_operations_raise_cudas_message():
    (operation, arguments, module) = CUDA_LISTS.banned[0]
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            getattr(module, operation)(*arguments)
        with pytest.raises(RuntimeError, match="BCEWithLogitsLoss"):
            F.binary_cross_entropy(torch.rand(3), torch.rand(3))
    F.binary_cross_entropy(torch.rand(3), torch.rand(3))


def half_dtypes():
    """What a set of operations that the two devices treat differently returns for bfloat16 inputs."""
    x = torch.rand(1, 4, 4, dtype=BF16)
    results = {
        "softmax": x.softmax(-1),
        "sum": x.sum(),
        "prod": x.prod(),
        "pow": x**2,
        "norm": torch.norm(x),
        "layer_norm": F.layer_norm(x, (4,)),
        "cat": torch.cat([x, x.float()]),
        "reflection_pad1d": F.pad(x, (1, 1), mode="reflect"),
        "einsum": torch.einsum("bij,bjk->bik", x.float(), x.float()),
        "cross_entropy": F.cross_entropy(x[0], torch.tensor([0, 1, 2, 3])),
    }
    return {name: result.dtype for name, result in results.items()}


def plain_cpu_dtypes():
    with torch.autocast("cpu", dtype=BF16):
        return half_dtypes()


def state():
    """Return everything of PyTorch's that ``cuda_rules`` touches, and what comes of it."""
    kernels = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    fast = torch.backends.mha.get_fastpath_enabled()
    return plain_cpu_dtypes(), sorted(kernels), fast, torch.is_autocast_enabled("cpu")


@pytest.fixture
def rules_come_back():
    """Hold that after the test, as before it, everything is as PyTorch has it."""
    before = state()
    assert before[0]["softmax"] is BF16
    yield before
    assert state() == before


def softmax_dtype():
    with torch.autocast("cpu", dtype=BF16):
        return torch.rand(3).bfloat16().softmax(0).dtype


def test_cpu_rules_are_back_after_the_block_and_blocks_nest(rules_come_back):
    with autocast.cuda_rules():
        assert state()[1:] != rules_come_back[1:]
        with autocast.cuda_rules():
            assert softmax_dtype() is F32
        assert softmax_dtype() is F32


def test_cpu_rules_are_back_after_an_exception(rules_come_back):
    with pytest.raises(ZeroDivisionError), autocast.cuda_rules(), torch.autocast("cpu", dtype=BF16):
        torch.rand(3, dtype=BF16).softmax(1 // 0)


def test_a_block_counts_in_its_own_thread_and_outlives_those_of_others(rules_come_back):
    before = rules_come_back[0]
    entered, leave = threading.Event(), threading.Event()

    def other():
        with autocast.cuda_rules():
            entered.set()
            leave.wait(10)
            return softmax_dtype()

    with ThreadPoolExecutor() as threads:
        with autocast.cuda_rules():
            assert threads.submit(plain_cpu_dtypes).result() == before
            assert softmax_dtype() is F32
            inside = threads.submit(other)
            assert entered.wait(10)
        assert plain_cpu_dtypes() == before
        leave.set()
        assert inside.result() is F32
        assert threads.submit(plain_cpu_dtypes).result() == before


def test_operations_only_the_cpu_lists_follow_their_inputs():
    x = torch.rand(1, 4, 4, dtype=BF16)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=BF16):
        assert F.pad(x, (1, 1), mode="reflect").dtype is BF16
        assert F.avg_pool3d(x[None], (1, 2, 2)).dtype is BF16
        assert torch.stack([x, x.float()]).dtype is F32


def test_what_takes_16_bits_on_no_device_is_refused():
    """Only a kernel that is missing is made up for."""
    with autocast.cuda_rules(), torch.autocast("cpu", BF16):
        assert torch.linalg.svdvals(torch.eye(4).bfloat16()).dtype is BF16
        with pytest.raises(RuntimeError, match="Low precision dtypes not supported"):
            torch.linalg.inv(torch.eye(4).bfloat16())


@pytest.mark.parametrize("half", HALVES)
def test_a_dtype_asked_for_wins_and_float64_and_integers_are_left_alone(half):
    x = torch.rand(3, dtype=half)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=half):
        assert x.sum(dtype=half).dtype is half
        assert F.softmax(x, dim=0, dtype=half).dtype is half
        assert x.double().softmax(0).dtype is F64
        assert torch.mm(torch.rand(2, 2).double(), torch.rand(2, 2).double()).dtype is F64
        assert torch.arange(3).sum().dtype is torch.int64
        with torch.autocast("cpu", enabled=False):
            assert x.softmax(0).dtype is half


def test_promotion_ignores_float64_and_refuses_a_foreign_half():
    low, single, double = (torch.rand(3, dtype=d) for d in (F16, F32, F64))
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
        assert torch.atan2(low, low).dtype is F16
        assert torch.atan2(low, single).dtype is F32
        assert torch.atan2(double, low).dtype is F64
        with pytest.raises(RuntimeError, match="bfloat16"):
            torch.atan2(low, low.bfloat16())


class Mixed(nn.Module):
    """Linear, LayerNorm, softmax, a power and a loss: every kind of rule on the way."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x, target):
        hidden = F.relu(self.norm(self.first(x)))
        scores = self.second(hidden).softmax(-1) + (hidden[:, :4] ** 2).mean()
        return F.mse_loss(scores, target) + torch.einsum("ij,ij->", scores, target)

    def by_hand(self, x, target, half):
        """The same with CUDA's casts written out."""
        first = F.linear(x.to(half), self.first.weight.to(half), self.first.bias.to(half))
        normed = F.layer_norm(first.float(), (8,), self.norm.weight, self.norm.bias)
        hidden = F.relu(normed)
        second = F.linear(hidden.to(half), self.second.weight.to(half), self.second.bias.to(half))
        scores = second.softmax(-1, dtype=F32) + (hidden[:, :4].float() ** 2).mean()
        return F.mse_loss(scores, target) + torch.einsum("ij,ij->", scores.to(half), target.to(half))


@pytest.mark.parametrize("half", HALVES)
def test_results_and_gradients_equal_casts_written_by_hand(half):
    torch.manual_seed(0)
    model, x, target = Mixed(), torch.randn(5, 6), torch.rand(5, 4)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=half):
        loss = model(x, target)
    reference = model.by_hand(x, target, half)
    assert loss.dtype is reference.dtype
    assert torch.equal(loss, reference)
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    for gradient, expected in zip(gradients, torch.autograd.grad(reference, parameters), strict=True):
        assert gradient.dtype is F32
        assert torch.equal(gradient, expected)


def counted_casts(function):
    """How often a float32 tensor was converted to float16 while ``function`` ran."""

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        casts = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.casts += func is torch.ops.aten._to_copy.default
            return func(*args, **(kwargs or {}))

    with Count():
        function()
    return Count.casts


@pytest.mark.parametrize("operation", ["matmul", "einsum"])
def test_weights_are_cast_once_per_autocast_block(operation):
    """Einsum has no kernel of the CPU's own that could do the caching."""
    run = {"matmul": torch.matmul, "einsum": lambda a, b: torch.einsum("ij,jk->ik", a, b)}[operation]
    weight, x = nn.Parameter(torch.rand(3, 3)), torch.rand(3, 3)

    def twice(cache_enabled=True):
        with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16, cache_enabled=cache_enabled):
            return run(x, weight), run(x, weight)

    assert counted_casts(twice) == 3
    assert counted_casts(lambda: twice(cache_enabled=False)) == 4
    first, second = twice()
    (gradient,) = torch.autograd.grad((first.float() + second.float()).sum(), weight)
    assert torch.allclose(gradient, 2 * x.sum(0)[:, None].expand(3, 3), rtol=1e-2)


def test_one_long_block_keeps_using_the_first_cast_of_a_weight():
    weight, x = nn.Parameter(torch.ones(2, 2)), torch.ones(2, 2)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
        before = torch.einsum("ij,jk->ik", x, weight)
        with torch.no_grad():
            weight.mul_(3)
        assert torch.equal(torch.einsum("ij,jk->ik", x, weight), before)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
        assert torch.equal(torch.einsum("ij,jk->ik", x, weight), 3 * before)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_run_in_float16_as_cudnn_does(layer, half):
    model = layer(3, 5, num_layers=2, batch_first=True)
    x = torch.randn(2, 4, 3)
    packed = nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True)
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=half):
        output, _ = model(x)
        packed_output, _ = model(packed)
    assert output.dtype is F16
    assert packed_output.data.dtype is F16
    torch.testing.assert_close(output.float(), model(x)[0], rtol=1e-2, atol=1e-2)
    output.float().sum().backward()
    assert all(parameter.grad.dtype is F32 for parameter in model.parameters())


@pytest.mark.parametrize(("device_type", "fused"), [("cuda", False), ("cpu", True)])
def test_attention_never_takes_the_fused_inference_path(device_type, fused):
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        ledger = autocast.record(layer, x, x, x, device_type=device_type, dtype=BF16)
    assert ("aten::_native_multi_head_attention" in ledger.by_op()) is fused
    assert torch.backends.mha.get_fastpath_enabled()


def test_fake_tensors_follow_the_rules():
    with autocast.fake_tensors():
        model, x, target = Mixed(), torch.randn(5, 6), torch.rand(5, 4)
        with autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
            loss = model(x, target)
            assert torch.rand(3, dtype=F16).softmax(0).dtype is F32
    assert loss.dtype is F32


def test_on_the_cpu_the_status_says_that_the_rules_are_active_and_it_keeps_quiet():
    with warnings.catch_warnings(), autocast.cuda_rules("cpu") as status:
        warnings.simplefilter("error")
        torch.rand(3).softmax(0)
    assert status.active
    assert "CUDA rules" in status.sentence


@pytest.mark.parametrize("device", ["cuda:0", None])
def test_on_cuda_and_inside_its_own_autocast_nothing_is_changed_and_it_says_so(device, monkeypatch):
    if device is None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        torch.set_autocast_enabled("cuda", True)
    before = state()
    try:
        with pytest.warns(UserWarning, match="nothing was changed"), autocast.cuda_rules(device) as status:
            assert state() == before
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert not status.active
    assert "nothing was changed" in status.sentence


@pytest.mark.parametrize(
    ("device_type", "dtype", "expected"), [("cuda", F16, F32), ("cpu", F16, F16), ("cuda", None, F16)]
)
def test_region_means_the_rules_of_that_device(device_type, dtype, expected):
    x = torch.rand(3, dtype=F16)
    ambient = torch.autocast("cpu", dtype=F16, enabled=dtype is None)
    with ambient, autocast.region(device_type, dtype):
        assert x.softmax(0).dtype is expected
        assert torch.is_autocast_enabled("cpu") is (dtype is not None)


@pytest.mark.parametrize(
    ("device_type", "dtype", "device", "message"),
    [
        ("cuda", F32, "cpu", "torch.float32"),
        ("tpu", F16, "cpu", "unknown device type 'tpu'"),
        ("mps", F16, "cpu", "only by their own"),
        ("cpu", F16, "cuda", "only by their own"),
        ("cuda", F16, "meta", "unknown device type 'meta'"),
    ],
)
def test_region_refuses_what_does_not_exist(device_type, dtype, device, message):
    with pytest.raises(ValueError, match=message):
        autocast.region(device_type, dtype, device)


def outcome(operation, *tensors):
    try:
        return operation(*tensors).dtype
    except RuntimeError as error:
        return str(error)[: len("Unexpected floating ScalarType")]


@pytest.mark.parametrize("dtypes", itertools.product((F32, F16, BF16), repeat=2))
def test_the_widest_dtype_is_looked_for_in_order_as_pytorch_does(dtypes):
    """By PyTorch's own rule on a CPU, whose ``cat`` goes through the same function as CUDA's ``dot``."""
    pair = [torch.ones(4, dtype=dtype) for dtype in dtypes]
    with torch.autocast("cpu", dtype=F16):
        expected = outcome(lambda *both: torch.cat(both), *pair)
    with autocast.region("cuda", F16):
        assert outcome(torch.dot, *pair) == expected
