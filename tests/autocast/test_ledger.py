"""What a ledger says about small models, where every row can be foretold."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import autocast
from amp_lessons.autocast import Cast, Policy, record

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4), nn.Softmax(-1))


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
    assert ledger.rows[1].casts == (Cast(F16, F32, 2 * 16),)
    assert ledger.rows[3].casts == (
        Cast(F32, F16, 32),
        Cast(F32, F16, 64, "3.weight"),
        Cast(F32, F16, 4, "3.bias"),
    )
    assert ledger.rows[4].casts == ()
    assert ledger.rows[3].output_shape == (2, 4)
    assert ledger.backward == ()


def test_rows_under_the_cpus_rules():
    ledger = record(perceptron(), torch.randn(2, 8), device_type="cpu", dtype=BF16)
    assert columns(ledger.rows) == [
        ("0", "aten::linear", (F32, F32, F32), BF16, Policy.LOWER_PRECISION),
        ("1", "aten::layer_norm", (BF16, F32, F32), BF16, None),
        ("2", "aten::relu", (BF16,), BF16, None),
        ("3", "aten::linear", (BF16, F32, F32), BF16, Policy.LOWER_PRECISION),
        ("4", "aten::softmax", (BF16,), BF16, None),
    ]


def test_rows_without_autocast():
    ledger = record(perceptron(), torch.randn(2, 8), dtype=None)
    assert {(row.output_dtype, row.policy, row.rule) for row in ledger.rows} == {(F32, None, "autocast off")}
    assert ledger.casts == ()


def test_real_and_fake_tensors_give_the_same_ledger():
    model, x = perceptron(), torch.randn(2, 8)
    real = record(model, x, backward=True)
    fake = record(autocast.fake_copy(model), x, backward=True)
    assert fake.rows == real.rows
    assert fake.saved_bytes == real.saved_bytes
    assert "fake" in fake.where
    assert "real" in real.where


def test_backward_rows_run_in_the_dtype_of_their_forward():
    ledger = record(perceptron(), torch.randn(2, 8), backward=True)
    products = [row for row in ledger.backward if row.op == "aten::mm"]
    assert [row.module for row in products] == ["3", "3", "0"]
    assert {row.input_dtypes for row in products} == {(F16, F16)}
    norm = next(row for row in ledger.backward if row.op == "aten::native_layer_norm_backward")
    assert (norm.module, norm.output_dtype) == ("1", F32)
    to_float32 = [row for row in ledger.backward if row.op == "aten::to" and row.output_dtype is F32]
    assert sum(row.casts[0].elements for row in to_float32 if row.module == "0") == 8 * 16 + 16
    assert all(not row.autocast and row.policy is None for row in ledger.backward)


def test_gradients_are_recorded_not_stored():
    model, x = perceptron(), torch.randn(2, 8)
    record(model, x, backward=True)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_backward_starts_from_a_loss_function_called_under_autocast():
    target = torch.tensor([1, 2])
    model = nn.Linear(8, 4)
    ledger = record(model, torch.randn(2, 8), backward=lambda output: F.cross_entropy(output, target))
    loss = ledger.forward[-1]
    assert (loss.module, loss.op, loss.output_dtype) == ("", "aten::cross_entropy_loss", F32)
    assert (loss.policy, loss.through) == (Policy.FP32, "aten::nll_loss")
    assert ledger.backward


def test_backward_starts_from_the_outputs_loss_if_there_is_one():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return {"loss": self.used(x).mean(), "logits": self.unused(x)}

    ledger = record(WithLoss(), torch.randn(2, 2), backward=True)
    assert {row.module for row in ledger.backward} == {"", "used"}


def test_a_composite_in_no_list_shows_the_listed_operation_inside():
    x = torch.randn(1, 3, 8, 8)
    ledger = record(nn.Conv2d(3, 4, 3, padding="same"), x)
    (row,) = ledger.rows
    assert (row.op, row.output_dtype, row.policy) == ("aten::conv2d", F16, Policy.LOWER_PRECISION)
    assert row.through in ("aten::convolution", "aten::conv2d")
    assert [cast.parameter for cast in row.casts] == ["", "weight", "bias"]


def test_batch_norm_is_in_no_list():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    ledger = record(model, torch.randn(2, 3, 8, 8))
    convolution, counter, norm, relu = ledger.rows
    assert (counter.op, counter.output_dtype) == ("aten::add_", torch.int64)  # num_batches_tracked
    assert convolution.output_dtype is F16
    assert (norm.op, norm.input_dtypes[:3], norm.output_dtype) == ("aten::batch_norm", (F16, F32, F32), F16)
    assert (norm.policy, norm.casts) == (None, ())
    assert relu.output_dtype is F16


class Islands(nn.Module):
    """Casts written in the code, autocast switched off, an in-place operation and one with a plain number."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        with torch.autocast("cpu", enabled=False):
            x = self.linear(x.float())
        x = x.half().divide(2)
        return x.add_(1)


def test_islands_and_casts_in_the_code():
    ledger = record(Islands(), torch.randn(2, 4))
    assert [(row.op, row.output_dtype, row.rule, len(row.casts)) for row in ledger.rows] == [
        ("aten::linear", F16, "lower precision", 3),
        ("aten::to", F32, "cast in the code", 0),
        ("aten::linear", F32, "autocast off", 0),
        ("aten::to", F16, "cast in the code", 0),
        ("aten::divide", F16, "follows its inputs", 0),
        ("aten::add_", F16, "follows its inputs", 0),
    ]


def test_a_weight_that_is_used_twice_is_cast_once():
    class Twice(nn.Module):
        def __init__(self, cell):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            return self.cell(x, self.cell(x))

    ledger = record(Twice(nn.GRUCell(3, 3)), torch.randn(2, 3))
    cells = [row for row in ledger.rows if row.op == "aten::gru_cell"]
    assert [row.policy for row in cells] == [Policy.LOWER_PRECISION] * 2
    assert [sum(bool(cast.parameter) for cast in row.casts) for row in cells] == [4, 0]


def test_summaries_add_up():
    ledger = record(perceptron(), torch.randn(2, 8), backward=True)
    total = ledger.total()
    assert total.operations == len(ledger.rows)
    assert total.casts == len(ledger.casts)
    assert (
        total.cast_bytes
        == ledger.cast_bytes
        == sum(cast.elements * cast.target.itemsize for cast in ledger.casts)
    )
    assert ledger.weight_copy_bytes == 2 * (8 * 16 + 16 + 16 * 4 + 4)
    for groups in (ledger.by_module(), ledger.by_rule(), ledger.by_op()):
        assert sum(group.operations for group in groups.values()) == total.operations
        assert sum(group.cast_bytes for group in groups.values()) == total.cast_bytes
    assert ledger.by_rule()["lower precision"].output_dtypes == {F16: 2}
    assert list(ledger.by_module())[:5] == ["0", "1", "2", "3", "4"]
    assert ledger.by_op()["aten::linear"].casts == 6


def test_saved_bytes_are_those_that_saved_tensor_hooks_see():
    model, x = perceptron(), torch.randn(2, 8)
    owned = {parameter.data_ptr() for parameter in model.parameters()}
    kept = {}
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t)
    with hooks, autocast.cuda_rules(), torch.autocast("cpu", dtype=F16):
        output = model(x)
    assert output.requires_grad
    expected: dict[torch.dtype, int] = {}
    for pointer, tensor in kept.items():
        if pointer not in owned:
            expected[tensor.dtype] = expected.get(tensor.dtype, 0) + tensor.untyped_storage().nbytes()
    assert record(model, x).saved_bytes == expected


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
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.linear = nn.Embedding(5, 4), nn.Linear(4, 4)

        def forward(self, batch, *, scale, mask=None):
            hidden = self.embedding(batch["tokens"][0])
            return {"out": (self.linear(hidden) * scale[0], hidden.sum(1))}

    batch = {"tokens": [torch.tensor([[1, 2, 3]])]}
    ledger = record(Nested(), batch, scale=(torch.ones(()),), backward=True)
    assert ledger.rows[0].input_dtypes == (F32, torch.int64)
    assert [row.op for row in ledger.forward] == ["aten::embedding", "aten::linear", "aten::mul", "aten::sum"]


def test_a_model_without_parameters():
    ledger = record(nn.Softmax(-1), torch.randn(2, 3).half())
    assert columns(ledger.rows) == [("", "aten::softmax", (F16,), F32, Policy.FP32_SET_OPT_DTYPE)]
    assert "no floating parameters" in ledger.notes[0]
    with pytest.raises(ValueError, match="nothing to run backward"):
        record(nn.Softmax(-1), torch.randn(2, 3), backward=True)


def test_integers_only():
    ledger = record(nn.Flatten(), torch.ones(2, 3, 4, dtype=torch.int64))
    assert [row.output_dtype for row in ledger.rows] == [torch.int64]


def test_a_model_that_is_half_already():
    ledger = record(nn.Linear(4, 4).half(), torch.randn(2, 4))
    (row,) = ledger.rows
    assert (row.input_dtypes, row.output_dtype) == ((F32, F16, F16), F16)
    assert [cast.parameter for cast in row.casts] == [""]
    assert "parameters are fp16 already" in ledger.notes[0]


def test_a_float64_model_is_left_alone():
    ledger = record(nn.Linear(4, 4).double(), torch.randn(2, 4).double())
    assert (ledger.rows[0].output_dtype, ledger.casts) == (F64, ())
    assert "float64" in ledger.notes[0]


class Fails(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), head

    def forward(self, x):
        return self.head(self.body(x).sigmoid())


class LossHead(nn.Module):
    def forward(self, x):
        return F.binary_cross_entropy(x, torch.zeros_like(x))


class PythonError(nn.Module):
    def forward(self, x):
        return {}["missing"]


@pytest.mark.parametrize("fake", [False, True])
def test_a_model_that_fails_under_autocast(fake):
    model = Fails(LossHead())
    with pytest.raises(autocast.RecordingError, match="unsafe to autocast") as caught:
        record(autocast.fake_copy(model) if fake else model, torch.randn(2, 4))
    assert "in head, at aten::binary_cross_entropy(fp16, fp16)" in str(caught.value)
    assert [row.op for row in caught.value.rows] == ["aten::linear", "aten::sigmoid", "aten::zeros_like"]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert record(perceptron(), torch.randn(2, 8)).rows


def test_a_model_that_fails_by_itself():
    with pytest.raises(autocast.RecordingError, match=r"forward pass failed .* KeyError: 'missing'"):
        record(Fails(PythonError()), torch.randn(2, 4))
    with pytest.raises(autocast.RecordingError, match=r"the model itself, at aten::linear\(fp32, fp32"):
        record(nn.Linear(4, 4), torch.randn(2, 3))


def test_a_backward_pass_that_fails():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("no gradient today")

    class Model(nn.Module):
        def forward(self, x):
            return Broken.apply(x)

    with pytest.raises(autocast.RecordingError, match=r"backward pass failed .* no gradient today"):
        record(Model(), torch.randn(2, requires_grad=True), backward=True)


def test_a_loss_function_that_fails_is_not_the_forward_pass():
    def wrong(output):
        return undefined_name  # noqa: F821

    with pytest.raises(autocast.RecordingError, match=r"^the function given as backward failed .* NameError"):
        record(perceptron(), torch.randn(2, 8), backward=wrong)
    with pytest.raises(autocast.RecordingError, match=r"given as backward failed .* at aten::sum\(fp32\)"):
        record(perceptron(), torch.randn(2, 8), backward=lambda output: output.sum(dim=7))


@pytest.mark.parametrize("returned", [1.0, None])
def test_a_loss_function_that_returns_no_tensor_is_told_so(returned):
    with pytest.raises(TypeError, match=f"returns the loss, a tensor, not {type(returned).__name__}"):
        record(perceptron(), torch.randn(2, 8), backward=lambda output: returned)


def test_a_model_that_gets_over_a_failure_keeps_its_paths():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.broken = nn.Sequential(nn.Linear(4, 4), PythonError())
            self.forbidden, self.last = nn.ReLU(), nn.ReLU()
            self.forbidden.register_forward_pre_hook(lambda *_: 1 // 0)

        def forward(self, x):
            for module, error in ((self.broken, KeyError), (self.forbidden, ZeroDivisionError)):
                try:
                    module(x)
                except error:
                    x = x.tanh()
            return self.last(x)

    ledger = record(Careful(), torch.randn(2, 4))
    assert [(row.module, row.op) for row in ledger.rows] == [
        ("broken.0", "aten::linear"),
        ("", "aten::tanh"),
        ("", "aten::tanh"),
        ("last", "aten::relu"),
    ]


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("dtype", [None, F16, BF16])
def test_nothing_that_happens_below_autograd_gets_a_row(dtype, fake):
    """A saved result is detached when it is unpacked, which Python tensors and modes see as a call."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4)
    ledger = record(autocast.fake_copy(model) if fake else model, x, dtype=dtype, backward=True)
    assert [row.op for row in ledger.forward] == ["aten::linear", "aten::tanh"]
    assert {row.op for row in ledger.backward} <= {
        *("aten::tanh_backward", "aten::t", "aten::mm", "aten::sum", "aten::view", "aten::to")
    }


def test_a_recording_inside_a_recording_is_refused():
    class Recursive(nn.Module):
        def forward(self, x):
            return record(nn.ReLU(), x)

    with pytest.raises(autocast.RecordingError, match="cannot be recorded while it is being recorded"):
        record(Recursive(), torch.randn(2))
    assert record(nn.ReLU(), torch.randn(2)).rows


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dtype": F32}, ValueError, "float16 or torch.bfloat16"),
        ({"device_type": "tpu"}, ValueError, "unknown device type 'tpu'"),
        ({"device_type": "mps"}, ValueError, "only by their own"),
    ],
)
def test_arguments_that_make_no_sense(arguments, error, message):
    with pytest.raises(error, match=message):
        record(nn.Linear(4, 4), torch.randn(2, 4), **arguments)


def test_things_that_are_no_model_and_mixtures_of_real_and_fake():
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, got builtin"):
        record(torch.relu, torch.randn(2))
    with autocast.fake_tensors():
        fake = torch.randn(2, 4)
    with pytest.raises(ValueError, match=r"use fake_copy\(model\) instead"):
        record(nn.Linear(4, 4), fake)
    with pytest.raises(ValueError, match="different blocks"):
        record(autocast.fake_copy(nn.Linear(4, 4)), fake)
    assert record(nn.ReLU(), fake).rows
    with pytest.raises(ValueError, match="one device"):
        record(nn.Linear(4, 4), torch.ones(2, 4, device="meta"))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_saved_and_a_note_says_so(mode):
    with mode():
        ledger = record(perceptron(), torch.randn(2, 8))
    assert ledger.saved_bytes == {}
    assert len(ledger.rows) == 5
    assert "recorded under no_grad or inference_mode" in ledger.notes[-1]
    assert record(perceptron(), torch.randn(2, 8)).notes == ()


@pytest.mark.few
@pytest.mark.parametrize("dtype", [F16, BF16, None])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
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
        assert ledger.rows == expected.rows
        assert ledger.saved_bytes == expected.saved_bytes != {}
        assert ledger.notes == ()
    assert all(parameter.grad is None for parameter in model.parameters())


class Thrice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(self.layer(self.layer(x)))


@pytest.mark.parametrize(("device_type", "dtype"), [("cuda", F16), ("cuda", BF16), ("cpu", BF16)])
@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize(("mode", "casts"), [(torch.no_grad, [3, 0, 0]), (torch.inference_mode, [3, 2, 2])])
def test_under_inference_mode_each_use_of_a_weight_casts_it(mode, casts, fake, device_type, dtype):
    model = autocast.fake_copy(Thrice()) if fake else Thrice()
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
    model = nn.Sequential(shared, torch.jit.script(nn.ReLU()), shared)
    ledger = record(model, torch.randn(2, 4))
    assert [(row.module, row.op) for row in ledger.rows] == [
        ("0", "aten::linear"),
        ("", "aten::relu"),
        ("0", "aten::linear"),
    ]


def test_checkpointed_activations_are_computed_twice():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1), nn.Linear(4, 4))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=False)

    ledger = record(Checkpointed(), torch.randn(2, 4), backward=True)
    again = [(row.op, row.output_dtype, row.policy) for row in ledger.backward if row.autocast]
    first = [(row.op, row.output_dtype, row.policy) for row in ledger.forward if row.module]
    assert again[:2] == first[:2]


def test_a_row_reads_as_a_sentence():
    rows = [str(row) for row in record(nn.Conv1d(1, 1, 1, padding="same"), torch.randn(1, 1, 2)).rows]
    assert rows[0].startswith("(model): aten::conv1d(fp32, fp32, fp32) -> fp16 [lower precision")
    assert rows[0].endswith("3 casts]")
