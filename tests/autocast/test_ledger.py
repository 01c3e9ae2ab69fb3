"""What a ledger says about small models, where every row can be foretold."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import autocast
from amp_lessons.autocast import Cast, Policy, record
from tests.measure.architectures import Made

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
MODES = [torch.no_grad, torch.inference_mode]


def perceptron():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))


def ran(rows):
    return [(row.module, row.op) for row in rows]


def columns(rows):
    return [(row.module, row.op, row.input_dtypes, row.output_dtype, row.policy) for row in rows]


def test_rows_under_cudas_rules():
    ledger = record(perceptron(), torch.randn(2, 8))
    assert columns(ledger.rows) == [
        ("0", "aten::linear", (F32, F32, F32), F16, Policy.LOWER_PRECISION),
        ("1", "aten::layer_norm", (F16, F32, F32), F32, Policy.FP32),
        ("2", "aten::relu", (F32,), F32, None),
        ("3", "aten::linear", (F32, F32, F32), F16, Policy.LOWER_PRECISION),
        ("4", "aten::softmax", (F16,), F32, Policy.FP32_SET_OPT_DTYPE),
    ]
    weights = Cast(F32, F16, 64, "3.weight"), Cast(F32, F16, 4, "3.bias")
    assert ledger.rows[1].casts == (Cast(F16, F32, 2 * 16),)
    assert ledger.rows[3].casts == (Cast(F32, F16, 32), *weights)
    assert ledger.rows[4].casts == ledger.backward == ()
    assert ledger.rows[3].output_shape == (2, 4)


def test_rows_under_the_cpus_rules_and_without_autocast():
    ledger = record(perceptron(), torch.randn(2, 8), device_type="cpu", dtype=BF16)
    assert columns(ledger.rows) == [
        ("0", "aten::linear", (F32, F32, F32), BF16, Policy.LOWER_PRECISION),
        ("1", "aten::layer_norm", (BF16, F32, F32), BF16, None),
        ("2", "aten::relu", (BF16,), BF16, None),
        ("3", "aten::linear", (BF16, F32, F32), BF16, Policy.LOWER_PRECISION),
        ("4", "aten::softmax", (BF16,), BF16, None),
    ]
    ledger = record(perceptron(), torch.randn(2, 8), dtype=None)
    assert {(row.output_dtype, row.policy, row.rule) for row in ledger.rows} == {(F32, None, "autocast off")}
    assert ledger.casts == ()


def test_backward_rows_run_in_the_dtype_of_their_forward_and_store_no_gradient():
    model = perceptron()
    ledger = record(model, torch.randn(2, 8), backward=True)
    products = [row for row in ledger.backward if row.op == "aten::mm"]
    assert [row.module for row in products] == ["3", "3", "0"]
    assert {row.input_dtypes for row in products} == {(F16, F16)}
    norm = next(row for row in ledger.backward if row.op == "aten::native_layer_norm_backward")
    assert (norm.module, norm.output_dtype) == ("1", F32)
    to_float32 = [row for row in ledger.backward if row.op == "aten::to" and row.output_dtype is F32]
    assert sum(row.casts[0].elements for row in to_float32 if row.module == "0") == 8 * 16 + 16
    assert all(not row.autocast and row.policy is None for row in ledger.backward)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_backward_starts_from_a_loss_function_called_under_autocast():
    target = torch.tensor([1, 2])
    ledger = record(
        nn.Linear(8, 4), torch.randn(2, 8), backward=lambda output: F.cross_entropy(output, target)
    )
    loss = ledger.forward[-1]
    assert (loss.module, loss.op, loss.output_dtype) == ("", "aten::cross_entropy_loss", F32)
    assert (loss.policy, loss.through) == (Policy.FP32, "aten::nll_loss")
    assert ledger.backward


def test_backward_starts_from_the_outputs_loss_if_there_is_one():
    def forward(self, x):
        return {"loss": self.used(x).mean(), "logits": self.unused(x)}

    model = Made(forward, used=nn.Linear(2, 2), unused=nn.Linear(2, 2))
    ledger = record(model, torch.randn(2, 2), backward=True)
    assert {row.module for row in ledger.backward} == {"", "used"}


def test_a_composite_in_no_list_shows_the_listed_operation_inside():
    (row,) = record(nn.Conv2d(3, 4, 3, padding="same"), torch.randn(1, 3, 8, 8)).rows
    assert (row.op, row.output_dtype, row.policy) == ("aten::conv2d", F16, Policy.LOWER_PRECISION)
    assert row.through in ("aten::convolution", "aten::conv2d")
    assert [cast.parameter for cast in row.casts] == ["", "weight", "bias"]
    assert str(row).startswith("(model): aten::conv2d(fp32, fp32, fp32) -> fp16 [lower precision")
    assert str(row).endswith("3 casts]")


def test_batch_norm_is_in_no_list():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    convolution, counter, norm, relu = record(model, torch.randn(2, 3, 8, 8)).rows
    assert (counter.op, counter.output_dtype) == ("aten::add_", torch.int64)  # num_batches_tracked
    assert convolution.output_dtype is relu.output_dtype is F16
    assert (norm.op, norm.input_dtypes[:3], norm.output_dtype) == ("aten::batch_norm", (F16, F32, F32), F16)
    assert (norm.policy, norm.casts) == (None, ())


def test_islands_and_casts_in_the_code():
    def forward(self, x):
        x = self.linear(x)
        with torch.autocast("cpu", enabled=False):
            x = self.linear(x.float())
        return x.half().divide(2).add_(1)

    ledger = record(Made(forward, linear=nn.Linear(4, 4)), torch.randn(2, 4))
    assert [(row.op, row.output_dtype, row.rule, len(row.casts)) for row in ledger.rows] == [
        ("aten::linear", F16, "lower precision", 3),
        ("aten::to", F32, "cast in the code", 0),
        ("aten::linear", F32, "autocast off", 0),
        ("aten::to", F16, "cast in the code", 0),
        ("aten::divide", F16, "follows its inputs", 0),
        ("aten::add_", F16, "follows its inputs", 0),
    ]


def test_a_weight_that_is_used_twice_is_cast_once():
    twice = Made(lambda self, x: self.cell(x, self.cell(x)), cell=nn.GRUCell(3, 3))
    cells = [row for row in record(twice, torch.randn(2, 3)).rows if row.op == "aten::gru_cell"]
    assert [row.policy for row in cells] == [Policy.LOWER_PRECISION] * 2
    assert [sum(bool(cast.parameter) for cast in row.casts) for row in cells] == [4, 0]


def test_summaries_add_up():
    ledger = record(perceptron(), torch.randn(2, 8), backward=True)
    total = ledger.total()
    assert (total.operations, total.casts) == (len(ledger.rows), len(ledger.casts))
    written = sum(cast.elements * cast.target.itemsize for cast in ledger.casts)
    assert total.cast_bytes == ledger.cast_bytes == written
    assert ledger.weight_copy_bytes == 2 * (8 * 16 + 16 + 16 * 4 + 4)
    for groups in (ledger.by_module(), ledger.by_rule(), ledger.by_op()):
        assert sum(group.operations for group in groups.values()) == total.operations
        assert sum(group.cast_bytes for group in groups.values()) == total.cast_bytes
    assert ledger.by_rule()["lower precision"].output_dtypes == {F16: 2}
    assert list(ledger.by_module())[:5] == ["0", "1", "2", "3", "4"]
    assert ledger.by_op()["aten::linear"].casts == 6


def test_a_model_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    ledger = record(model, torch.randn(2, 1, 5, 5, generator=torch.Generator().manual_seed(0)), backward=True)
    assert any(row.op == "aten::dropout" for row in ledger.rows)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not torch.is_autocast_enabled("cpu")


def test_nested_and_named_inputs_and_integers():
    def forward(self, batch, *, scale, mask=None):
        hidden = self.embedding(batch["tokens"][0])
        return {"out": (self.linear(hidden) * scale[0], hidden.sum(1))}

    nested = Made(forward, embedding=nn.Embedding(5, 4), linear=nn.Linear(4, 4))
    batch = {"tokens": [torch.tensor([[1, 2, 3]])]}
    ledger = record(nested, batch, scale=(torch.ones(()),), backward=True)
    assert ledger.rows[0].input_dtypes == (F32, torch.int64)
    assert [row.op for row in ledger.forward] == ["aten::embedding", "aten::linear", "aten::mul", "aten::sum"]
    ledger = record(nn.Flatten(), torch.ones(2, 3, 4, dtype=torch.int64))
    assert [row.output_dtype for row in ledger.rows] == [torch.int64]


def test_a_model_without_parameters():
    ledger = record(nn.Softmax(-1), torch.randn(2, 3).half())
    assert columns(ledger.rows) == [("", "aten::softmax", (F16,), F32, Policy.FP32_SET_OPT_DTYPE)]
    assert "no floating parameters" in ledger.notes[0]
    with pytest.raises(ValueError, match="nothing to run backward"):
        record(nn.Softmax(-1), torch.randn(2, 3), backward=True)


def test_a_model_that_is_half_already_and_one_in_float64_which_is_left_alone():
    ledger = record(nn.Linear(4, 4).half(), torch.randn(2, 4))
    (row,) = ledger.rows
    assert (row.input_dtypes, row.output_dtype) == ((F32, F16, F16), F16)
    assert [cast.parameter for cast in row.casts] == [""]
    assert "parameters are fp16 already" in ledger.notes[0]
    ledger = record(nn.Linear(4, 4).double(), torch.randn(2, 4).double())
    assert (ledger.rows[0].output_dtype, ledger.casts) == (F64, ())
    assert "float64" in ledger.notes[0]


def fails(head):
    return Made(lambda self, x: self.head(self.body(x).sigmoid()), body=nn.Linear(4, 4), head=Made(head))


def a_python_error(self, x):
    return {}["missing"]


@pytest.mark.parametrize("fake", [False, True])
def test_a_model_that_fails_under_autocast(fake):
    model = fails(lambda self, x: F.binary_cross_entropy(x, torch.zeros_like(x)))
    with pytest.raises(autocast.RecordingError, match="unsafe to autocast") as caught:
        record(autocast.fake_copy(model) if fake else model, torch.randn(2, 4))
    assert "in head, at aten::binary_cross_entropy(fp16, fp16)" in str(caught.value)
    assert [row.op for row in caught.value.rows] == ["aten::linear", "aten::sigmoid", "aten::zeros_like"]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert record(perceptron(), torch.randn(2, 8)).rows


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ArithmeticError("no gradient today")


def test_what_failed_is_told_with_its_place():
    x, wants_gradient = torch.randn(2, 8), torch.randn(2, requires_grad=True)
    for model, given, backward, words in (
        (fails(a_python_error), torch.randn(2, 4), False, r"forward pass failed .* KeyError: 'missing'"),
        (nn.Linear(4, 4), torch.randn(2, 3), False, r"the model itself, at aten::linear\(fp32, fp32"),
        (
            Made(lambda _, x: Broken.apply(x)),
            wants_gradient,
            True,
            "backward pass failed .* no gradient today",
        ),
        (perceptron(), x, lambda output: undefined, "^the function given as backward failed .* NameError"),  # noqa: F821
        (
            perceptron(),
            x,
            lambda output: output.sum(dim=7),
            r"given as backward failed .* at aten::sum\(fp32\)",
        ),
    ):
        with pytest.raises(autocast.RecordingError, match=words):
            record(model, given, backward=backward)
    for returned in (1.0, None):
        with pytest.raises(TypeError, match=f"returns the loss, a tensor, not {type(returned).__name__}"):
            record(perceptron(), x, backward=lambda output: returned)  # noqa: B023


def test_a_model_that_gets_over_a_failure_keeps_its_paths():
    def forward(self, x):
        for module, error in ((self.broken, KeyError), (self.forbidden, ZeroDivisionError)):
            try:
                module(x)
            except error:
                x = x.tanh()
        return self.last(x)

    broken = nn.Sequential(nn.Linear(4, 4), Made(a_python_error))
    careful = Made(forward, broken=broken, forbidden=nn.ReLU(), last=nn.ReLU())
    careful.forbidden.register_forward_pre_hook(lambda *_: 1 // 0)
    tanh = ("", "aten::tanh")
    rows = record(careful, torch.randn(2, 4)).rows
    assert ran(rows) == [("broken.0", "aten::linear"), tanh, tanh, ("last", "aten::relu")]


@pytest.mark.parametrize("dtype", [None, F16, BF16])
def test_real_and_fake_tensors_give_the_same_ledger_and_nothing_below_autograd_gets_a_row(dtype):
    """A saved result is detached when it is unpacked, which Python tensors and modes see as a call."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh()), torch.randn(2, 4)
    real = record(model, x, dtype=dtype, backward=True)
    fake = record(autocast.fake_copy(model), x, dtype=dtype, backward=True)
    assert [row.op for row in real.forward] == ["aten::linear", "aten::layer_norm", "aten::tanh"]
    below = ("tanh_backward", "native_layer_norm_backward", "t", "mm", "sum", "view", "to")
    assert {row.op for row in real.backward} <= {f"aten::{name}" for name in below}
    assert (fake.rows, fake.saved_bytes) == (real.rows, real.saved_bytes)
    assert "fake" in fake.where
    assert "real" in real.where


def test_a_recording_inside_a_recording_is_refused():
    recursive = Made(lambda self, x: record(nn.ReLU(), x))
    with pytest.raises(autocast.RecordingError, match="cannot be recorded while it is being recorded"):
        record(recursive, torch.randn(2))
    assert record(nn.ReLU(), torch.randn(2)).rows


def test_things_that_are_no_model_and_mixtures_of_real_and_fake_and_of_devices():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got builtin"):
        record(torch.relu, torch.randn(2))
    with autocast.fake_tensors():
        fake = torch.randn(2, 4)
    assert record(nn.ReLU(), fake).rows
    layer, on_meta = nn.Linear(4, 4), torch.ones(2, 4, device="meta")
    for model, x, options, words in (
        (layer, fake, {}, r"use fake_copy\(model\) instead"),
        (autocast.fake_copy(layer), fake, {}, "different blocks"),
        (layer, on_meta, {}, "one device"),
        (layer, torch.randn(2, 4), {"dtype": F32}, "float16 or torch.bfloat16"),
        (layer, torch.randn(2, 4), {"device_type": "mps"}, "only by their own"),
    ):
        with pytest.raises(ValueError, match=words):
            record(model, x, **options)


@pytest.mark.parametrize("mode", MODES)
def test_without_gradients_nothing_is_saved_and_a_note_says_so(mode):
    with mode():
        ledger = record(perceptron(), torch.randn(2, 8))
    assert (ledger.saved_bytes, len(ledger.rows)) == ({}, 5)
    assert "recorded under no_grad or inference_mode" in ledger.notes[-1]
    assert record(perceptron(), torch.randn(2, 8)).notes == ()


@pytest.mark.few
@pytest.mark.parametrize("dtype", [F16, BF16, None])
@pytest.mark.parametrize("mode", MODES)
def test_a_backward_pass_switches_gradients_on(mode, dtype):
    model, x = perceptron(), torch.randn(2, 8)
    expected = record(model, x, backward=True, dtype=dtype)
    with mode():
        ledgers = [
            record(model, x, backward=True, dtype=dtype),
            record(model, x.clone(), backward=lambda output: output, dtype=dtype),
            record(autocast.fake_copy(model), x.clone(), backward=True, dtype=dtype),
        ]
        assert not torch.is_grad_enabled()
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    for ledger in ledgers:
        assert (ledger.rows, ledger.notes) == (expected.rows, ())
        assert ledger.saved_bytes == expected.saved_bytes != {}
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("device_type", "dtype"), [("cuda", F16), ("cuda", BF16), ("cpu", BF16)])
@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize(("mode", "casts"), [(MODES[0], [3, 0, 0]), (MODES[1], [3, 2, 2])])
def test_under_inference_mode_each_use_of_a_weight_casts_it(mode, casts, fake, device_type, dtype):
    thrice = Made(lambda self, x: self.layer(self.layer(self.layer(x))), layer=nn.Linear(8, 8))
    model = autocast.fake_copy(thrice) if fake else thrice
    with mode():
        ledger = record(model, torch.randn(4, 8), device_type=device_type, dtype=dtype)
        assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert [len(row.casts) for row in ledger.rows] == casts
    assert [row.op for row in ledger.rows] == ["aten::linear"] * 3
    assert torch.is_autocast_cache_enabled()


def test_a_model_made_under_inference_mode_is_named():
    with torch.inference_mode():
        model = perceptron()
    with pytest.raises(ValueError, match=r"weight was made under torch\.inference_mode"):
        record(model, torch.randn(2, 8))
    assert record(model.requires_grad_(False), torch.randn(2, 8)).rows


def test_an_autocast_that_is_active_already_changes_nothing():
    model, x = perceptron(), torch.randn(2, 8)
    expected = record(model, x, dtype=BF16)
    with torch.autocast("cpu", dtype=BF16):
        model(x)
        ledger = record(model, x, dtype=BF16)
    assert ledger.rows == expected.rows


def test_scripted_modules_and_shared_ones():
    shared = nn.Linear(4, 4)
    ledger = record(nn.Sequential(shared, torch.jit.script(nn.ReLU()), shared), torch.randn(2, 4))
    assert ran(ledger.rows) == [("0", "aten::linear"), ("", "aten::relu"), ("0", "aten::linear")]


def test_checkpointed_activations_are_computed_twice():
    block = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4))
    checkpointed = Made(lambda self, x: checkpoint(self.block, x, use_reentrant=False), block=block)
    ledger = record(checkpointed, torch.randn(2, 4), backward=True)
    again = [(row.op, row.output_dtype, row.policy) for row in ledger.backward if row.autocast]
    first = [(row.op, row.output_dtype, row.policy) for row in ledger.forward if row.module]
    assert again[:2] == first[:2]
