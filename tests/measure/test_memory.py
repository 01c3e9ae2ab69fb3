"""Predicted memory against measured memory, and both against PyTorch's allocator."""

from __future__ import annotations

import copy
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from amp_lessons.autocast import fake_copy
from amp_lessons.measure import KINDS, measure_memory, predict_largest_batch, predict_memory
from tests.measure import architectures
from tests.measure.architectures import OF_TORCH, Made, build

pytestmark = pytest.mark.slow

SGD = partial(torch.optim.SGD, momentum=0.9)


def small():
    """Return a layer, and inputs and targets for it."""
    return nn.Sequential(nn.Linear(16, 4)), torch.randn(8, 16), torch.arange(8) % 4


@pytest.mark.few(10)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("make", [*OF_TORCH, architectures.gpt2, architectures.resnet])
def test_prediction_for_the_cpu_is_what_is_measured_there(make, precision):
    case = build(make)
    options = {"precision_name": precision, "optimizer": SGD, **case.kwargs}
    predicted = predict_memory(case.model, *case.args, **options, device_type="cpu")
    measured = measure_memory(case.model, *case.args, **options)
    assert predicted.saved == measured.saved
    assert (predicted.peak_bytes, predicted.peak_phase) == (measured.peak_bytes, measured.peak_phase)
    assert predicted.at_peak == measured.at_peak
    assert (predicted.source, measured.source) == ("computed (no GPU needed)", "measured here")


@pytest.mark.parametrize("device", ["cpu", "meta"])  # a GPU's are no less elsewhere
def test_a_loss_may_bring_its_targets_along(device):
    model, x, targets = small()
    brought = targets.to(device)
    memory = predict_memory(model, x, loss_fn=lambda output: F.cross_entropy(output, brought))
    with_its_loss = Made(lambda self, x, targets: F.cross_entropy(self.model(x), targets), model=model)
    given = predict_memory(with_its_loss, x, targets)
    assert given.at_peak["inputs"] - memory.at_peak["inputs"] == targets.nbytes
    assert memory.saved_bytes == given.saved_bytes


def test_a_loss_may_ask_a_teacher_and_the_models_own_parameters():
    model, x, targets = small()
    teacher, strength = nn.Sequential(nn.Linear(16, 400), nn.Linear(400, 4)).eval(), torch.tensor(0.5)

    def with_penalty(output):
        penalty = sum(parameter.pow(2).sum() for parameter in model.parameters())
        return F.cross_entropy(output, targets) + strength.item() * penalty

    alone = predict_memory(model, x, optimizer=None, loss_fn=lambda output: output.square().mean())
    asked = predict_memory(model, x, optimizer=None, loss_fn=lambda output: F.mse_loss(output, teacher(x)))
    assert asked.peak_bytes - alone.peak_bytes > 8 * 400 * 4  # what the teacher keeps for a backward pass
    assert asked.parameter_bytes == alone.parameter_bytes
    predicted = predict_memory(model, x, loss_fn=with_penalty, device_type="cpu")
    assert predicted.peak_bytes == measure_memory(model, x, loss_fn=with_penalty).peak_bytes
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("returned", [None, 1.0, {"loss": torch.ones(())}])
def test_what_a_loss_returns_is_a_tensor(returned):
    for of in (predict_memory, measure_memory):
        with pytest.raises(TypeError, match="what loss_fn returns is a tensor, the loss, not"):
            of(nn.Linear(2, 2), torch.ones(1, 2), loss_fn=lambda _: returned)


def test_inputs_may_come_out_of_another_module():
    backbone, head, x = nn.Linear(8, 16), nn.Linear(16, 4), torch.randn(2, 8)
    predicted = predict_memory(head, backbone(x), device_type="cpu")
    assert predicted.peak_bytes == measure_memory(head, backbone(x)).peak_bytes
    assert backbone.weight.grad is None


AROUND = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
    "anomaly": partial(torch.autograd.set_detect_anomaly, True),
}


@pytest.mark.parametrize("around", AROUND)
def test_what_is_on_around_it_makes_no_difference(around):
    model, x, _ = small()
    precision = "fp32" if around == "autocast" else "bf16"  # whose copies the outer region would keep

    def found(x):
        both = [of(model, x, precision_name=precision) for of in (predict_memory, measure_memory)]
        largest = predict_largest_batch(model, lambda batch: torch.randn(batch, 16), 2**20)
        return [*(replace(each, history=()) for each in both), largest]  # copies are freed in any order

    expected = found(x)
    with AROUND[around]():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        assert found(x) == found(x.clone()) == expected
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before
    assert all(parameter.grad is None for parameter in model.parameters())


COMPILED = """
import torch
from amp_lessons.measure import measure_memory, predict_memory

ran = 0

def backend(graph, _):
    def run(*arguments):
        global ran
        ran += 1
        return graph.forward(*arguments)

    return run

x = torch.randn(2, 8)
compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), backend=backend)
predict_memory(compiled, x)
measure_memory(compiled, x)
for _ in range(3):
    compiled(x)
print(ran)
"""


@pytest.mark.thorough
def test_a_compiled_model_is_compiled_all_the_same_afterwards():
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr


SHIFT = torch.ones(16)


def test_bookkeeping_of_a_layer_by_hand():
    layer, x = nn.Linear(100, 50, bias=False), torch.randn(8, 100)
    weights, inputs = 100 * 50 * 4, 8 * 100 * 4
    memory = predict_memory(layer, x, optimizer=torch.optim.AdamW)
    assert memory.parameter_bytes == memory.gradient_bytes == weights
    assert memory.optimizer_bytes == 2 * weights
    assert memory.saved_bytes == {torch.float32: inputs}
    # In the update: weights, gradients, two states and the square root of one of them.
    assert memory.peak_phase == "optimizer"
    assert memory.peak_bytes == 5 * weights + inputs


def test_shared_frozen_and_other_tensors_by_hand():
    with torch.device("meta"):  # weights stay shared also after a move
        embedding, head = nn.Embedding(30, 8), nn.Linear(8, 30, bias=False)
        head.weight = embedding.weight
    tied = predict_memory(nn.Sequential(embedding, head), torch.zeros(2, 3, dtype=torch.long))
    assert tied.parameter_bytes == tied.gradient_bytes == 30 * 8 * 4
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].requires_grad_(False)
    memory = predict_memory(model, torch.randn(2, 8))
    assert memory.parameter_bytes == 2 * memory.gradient_bytes == memory.optimizer_bytes
    shifted = Made(lambda self, x: self.layer(x + SHIFT), layer=nn.Linear(16, 4))
    memory = predict_memory(shifted, torch.randn(8, 16), optimizer=None)
    assert memory.saved_bytes == {torch.float32: 8 * 16 * 4}


def test_autocast_halves_what_is_saved_and_no_bytes_of_a_parameter_and_tf32_nothing():
    case = build(architectures.mlp)
    full, tf32, half = (
        predict_memory(case.model, *case.args, precision_name=name) for name in ("fp32", "tf32", "fp16")
    )
    parameters = sum(parameter.numel() for parameter in case.model.parameters())
    for memory in (full, half):
        assert memory.parameter_bytes + memory.gradient_bytes + memory.optimizer_bytes == 16 * parameters
    assert full.weight_copy_bytes == 0
    assert half.weight_copy_bytes == 2 * case.model[4].weight.numel()  # the first layer's is needed by nobody
    assert sum(half.saved_bytes.values()) < sum(full.saved_bytes.values())
    assert replace(tf32, history=()) == replace(full, history=())


def test_the_peak_is_the_worst_moment_of_the_history():
    case = build(architectures.transformer)
    memory = predict_memory(case.model, *case.args, precision_name="fp16")
    worst = max(memory.history, key=lambda moment: moment.total_bytes)
    assert (memory.at_peak, memory.peak_phase) == (worst.live_bytes, worst.phase)
    assert set(memory.at_peak) <= set(KINDS)
    phases = [moment.phase for moment in memory.history]
    assert list(dict.fromkeys(phases)) == ["forward", "backward", "optimizer"]
    assert sorted(phases, key=["forward", "backward", "optimizer"].index) == phases


def test_saved_bytes_are_told_by_module_and_depth_and_copies_of_weights_apart():
    first = nn.Sequential(nn.Linear(16, 8), nn.Tanh())
    model = nn.Sequential(first, nn.Sequential(nn.Linear(8, 4), nn.Tanh()))
    memory = predict_memory(model, torch.randn(5, 16))
    assert memory.saved_by_module() == {
        "0.0": {torch.float32: 5 * 16 * 4},
        "0.1": {torch.float32: 5 * 8 * 4},
        "1.1": {torch.float32: 5 * 4 * 4},
    }
    top = memory.saved_by_module(depth=1)
    assert top == {"0": {torch.float32: 5 * 24 * 4}, "1": {torch.float32: 5 * 4 * 4}}
    memory = predict_memory(model, torch.randn(5, 16), precision_name="fp16")
    copies = memory.saved_by_module(weight_copies=True)
    assert copies == {"1.0": {torch.float16: 8 * 4 * 2}}  # no gradient of the first layer's input is needed
    sizes = {"0.0": 5 * 16 * 2, "0.1": 5 * 8 * 2, "1.1": 5 * 4 * 2}
    others = {name: {torch.float16: nbytes} for name, nbytes in sizes.items()}
    assert memory.saved_by_module(weight_copies=False) == others


def test_on_a_gpu_dropout_keeps_one_byte_per_element():
    model, x = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)), torch.randn(32, 4)
    assert predict_memory(model, x).saved_bytes[torch.bool] == 32 * 64
    assert torch.bool not in predict_memory(model, x, device_type="cpu").saved_bytes
    model.eval()
    assert torch.bool not in predict_memory(model, x).saved_bytes


class Attention(nn.Module):
    def forward(self, q, kv, mask=None):
        grouped = q.shape[1] != kv.shape[1]
        return F.scaled_dot_product_attention(q, kv, kv, mask, dropout_p=0.1, enable_gqa=grouped)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("masked", [False, True])
def test_on_a_gpu_attention_does_not_keep_its_weights(precision, masked):
    batch, heads, tokens, channels = 2, 4, 128, 16
    x = torch.randn(batch, heads, tokens, channels, requires_grad=True)
    mask = torch.ones(tokens, tokens, dtype=torch.bool) if masked else None
    options = {"precision_name": precision, "optimizer": None}
    memory = predict_memory(Attention(), x, x, mask, **options)
    itemsize = 4 if precision == "fp32" else 2
    kept = 2 * x.numel() * itemsize + batch * heads * tokens * 4  # input, output and the sums of exponentials
    bias = tokens * tokens * itemsize if masked else 0
    assert sum(memory.saved_bytes.values()) == pytest.approx(kept + bias, abs=100)
    on_cpu = predict_memory(Attention(), x, x, mask, **options, device_type="cpu")
    assert sum(on_cpu.saved_bytes.values()) > 2 * batch * heads * tokens**2 * itemsize


def test_grouped_queries_are_predicted():
    q, kv = torch.randn(1, 8, 32, 16, requires_grad=True), torch.randn(1, 2, 32, 16, requires_grad=True)
    half = predict_memory(Attention(), q, kv, precision_name="bf16", optimizer=None)
    kept = (2 * q.numel() + kv.numel()) * 2 + 8 * 32 * 4
    assert sum(half.saved_bytes.values()) == pytest.approx(kept, abs=100)
    assert predict_memory(Attention(), q, kv, optimizer=None).peak_bytes > half.peak_bytes


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="PyTorch has no products of groups yet")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_products_of_groups_are_predicted_in_every_dtype(dtype):
    def experts(self, x):
        ends = torch.tensor([3, 8], dtype=torch.int32)
        return F.grouped_mm(x, self.weight, offs=ends).float().square().mean()

    weight = nn.Parameter(torch.randn(2, 16, 32, dtype=dtype))
    model, x = Made(experts, weight=weight), torch.randn(8, 16, dtype=dtype)
    predicted = predict_memory(model, x, optimizer=SGD, device_type="cpu")
    measured = measure_memory(model, x, optimizer=SGD)
    assert (predicted.saved, predicted.peak_bytes) == (measured.saved, measured.peak_bytes)


def test_checkpointing_trades_saved_bytes_for_a_second_forward():
    class Checkpointed(nn.Sequential):
        def forward(self, x):
            for layer in self:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

    layers = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32)) for _ in range(8)))
    x = torch.randn(256, 32)
    for name in ("fp32", "fp16"):
        options = {"precision_name": name, "optimizer": SGD}
        plain, spared = (predict_memory(each, x, **options) for each in (layers, Checkpointed(*layers)))
        assert sum(spared.saved_bytes.values()) < sum(plain.saved_bytes.values()) / 2
        assert spared.peak_bytes < plain.peak_bytes
        assert spared.gradient_bytes == plain.gradient_bytes


def test_nothing_is_left_behind():
    case = build(architectures.convnet)
    model = case.model
    case.args[0].requires_grad_()
    model(*case.args).sum().backward()
    with_gradients = [case.args[0], *model.parameters()]
    before, gradients = copy.deepcopy(model.state_dict()), [each.grad.clone() for each in with_gradients]
    random_state = torch.get_rng_state()
    predict_memory(model, *case.args, precision_name="fp16")
    measure_memory(model, *case.args, precision_name="bf16", optimizer=SGD)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(torch.equal(a, each.grad) for a, each in zip(gradients, with_gradients, strict=True))
    assert torch.equal(random_state, torch.get_rng_state())
    dropped = F.dropout(torch.ones(1000), 0.5)  # real tensors run through real kernels again
    assert set(dropped.unique().tolist()) == {0.0, 2.0}


def test_fake_models_and_models_without_data_are_predicted_alike():
    case = build(architectures.attention)
    with torch.device("meta"):
        on_meta = build(architectures.attention).model
    # The order in which autocast frees its copies is not fixed, and the history shows it.
    real, fake, meta = (
        replace(predict_memory(model, *case.args, precision_name="fp16"), history=())
        for model in (case.model, fake_copy(case.model), on_meta)
    )
    assert real == fake == meta


def test_recurrent_layers_of_a_gpu_are_warned_of_and_not_what_runs_step_by_step():
    gru, x = nn.GRU(4, 4), torch.randn(3, 2, 4)
    for layer in (nn.LSTM(4, 4), gru, nn.RNN(4, 4)):
        assert "a GPU has kernels of its own" in predict_memory(nn.Sequential(layer), x).warning
    assert not predict_memory(gru, x, device_type="cpu").warning
    assert not measure_memory(gru, x).warning
    assert not predict_memory(nn.LSTMCell(4, 4), x[0]).warning


@pytest.mark.parametrize("run", [predict_memory, measure_memory])
def test_bad_arguments_are_named(run):
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    with pytest.raises(ValueError, match="unknown precision 'half'"):
        run(model, x, precision_name="half")
    with pytest.raises(ValueError, match="there is nothing to train"):
        run(model.requires_grad_(False), x, optimizer=None)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        run(x, x)


XL = """
import pathlib, re, time
from transformers import GPT2Config, GPT2LMHeadModel
import torch
from amp_lessons.autocast import fake_tensors
from amp_lessons.measure import predict_memory
with fake_tensors():
    model = GPT2LMHeadModel(GPT2Config(n_embd=1600, n_layer=48, n_head=25))
    tokens = torch.zeros(8, 1024, dtype=torch.long)
started = time.process_time()
memory = predict_memory(model, tokens, labels=tokens, use_cache=False, precision_name="fp16")
print(time.process_time() - started)
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1]) / 2**20)
print(memory.parameter_bytes, memory.peak_bytes)
"""


@pytest.mark.thorough
def test_gpt2_xl_in_five_seconds_and_two_gibibytes():
    pytest.importorskip("transformers")
    if not Path("/proc/self/status").exists():
        pytest.skip("only Linux tells the peak of this process alone")
    done = subprocess.run([sys.executable, "-c", XL], capture_output=True, text=True, check=True)
    seconds, peak_gib, parameter_bytes, peak_bytes = map(float, done.stdout.split())
    assert seconds <= 5
    assert peak_gib <= 2
    assert parameter_bytes == 4 * 1_557_611_200
    assert peak_bytes > 16 * 1_557_611_200
