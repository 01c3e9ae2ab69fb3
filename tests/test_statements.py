"""What lessons and quizzes say in words, where no cell computes it: a test fails if the words are false."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.functional import cross_entropy

from amp_lessons import bench, data, measure, models
from amp_lessons.autocast import fake_tensors
from amp_lessons.measure import operations


@pytest.fixture(scope="module")
def first_batch():
    return data.batches(data.digits().train, batch_size=64)[0]


def gradient(model, batch, dtype=None):
    inputs, targets = batch
    model.zero_grad()
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = cross_entropy(model(inputs), targets)
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


class _Switched(torch.nn.Module):
    """A ReLU that notes which of its inputs it lets through, or lets through what another run noted."""

    def __init__(self, through=None):
        super().__init__()
        self.through, self.given = through, through is not None

    def forward(self, x):
        if not self.given:
            self.through = x > 0
        return x * self.through


def with_switches(model, switches):
    relus = [n for n, layer in enumerate(model.net) if isinstance(layer, torch.nn.ReLU)]
    for n, through in zip(relus, switches, strict=True):
        model.net[n] = _Switched(through)
    return model


def test_in_fp16_a_gradient_is_a_per_cent_or_two_off_and_a_switched_relu_is_why(first_batch):
    model = with_switches(model_again(), (None, None))
    true = gradient(model, first_batch)
    in_fp32 = [layer.through for layer in model.net if isinstance(layer, _Switched)]
    half = gradient(model, first_batch, torch.float16)
    assert 0.005 < (half - true).norm() / true.norm() < 0.03
    alike = gradient(with_switches(model_again(), in_fp32), first_batch, torch.float16)
    assert (alike - true).norm() / true.norm() < 0.001


def model_again():
    return models.digits_classifier(64, seed=0)


def test_adamw_holds_12_bytes_per_parameter_and_16_between_backward_and_zero_grad(first_batch):
    model = models.digits_classifier(64)
    optimizer = torch.optim.AdamW(model.parameters())
    count = sum(parameter.numel() for parameter in model.parameters())

    def held():
        states = [s for state in optimizer.state.values() for s in state.values() if s.dim()]
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        return sum(tensor.nbytes for tensor in (*model.parameters(), *grads, *states)) / count

    gradient(model, first_batch, torch.bfloat16)
    optimizer.step()
    assert held() == 16
    optimizer.zero_grad()
    assert held() == 12


def test_of_the_small_transformers_the_peak_holds_no_activations():
    pytest.importorskip("transformers")
    for name in ("BERT-Large", "GPT-2"):
        workload = bench.WORKLOADS[name]
        with fake_tensors():
            model = workload.build("small")
            inputs = workload.batch(model, workload.size("small").batch, "small")
        for precision_name in ("fp32", "bf16"):
            step = measure.predict_memory(model, precision_name=precision_name, device_type="cpu", **inputs)
            assert "saved activations" not in step.at_peak
            assert step.at_peak["optimizer state"] >= 2 * step.parameter_bytes


def test_the_loss_keeps_some_3_kb_beside_what_the_model_keeps(first_batch):
    inputs, targets = first_batch

    class WithLoss(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return cross_entropy(self.model(x), targets)

    for dtype in (None, torch.float16):
        model = model_again()
        kept = measure.saved_activation_bytes(model, inputs, dtype=dtype)
        with_loss = measure.saved_activation_bytes(WithLoss(model), inputs, dtype=dtype)
        extra = with_loss[torch.float32] - kept.get(torch.float32, 0) + with_loss.get(torch.int64, 0)
        assert 3000 < extra < 3200, "the log of the softmax in fp32, the labels and a weight"


def test_products_of_fp16_add_up_in_fp32_unless_asked_otherwise():
    if not hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation"):
        pytest.skip("this PyTorch has no such switch")
    assert torch.backends.cuda.matmul.allow_fp16_accumulation is False


def test_only_data_centre_gpus_multiply_tf32_faster_than_fp32():
    faster = {
        name: gpu.flop_per_s["tf32"] > gpu.flop_per_s["fp32"]
        for name, gpu in measure.GPUS.items()
        if "tf32" in gpu.flop_per_s
    }
    assert {name for name, gains in faster.items() if not gains} == {
        name for name in faster if name.startswith("RTX")
    }
    assert any(faster.values())


def test_operations_are_timed_forward_only_and_on_tensors_of_their_dtype(monkeypatch):
    seen = set()

    def watched(*inputs):
        seen.add((torch.is_grad_enabled(), *(tensor.dtype for tensor in inputs)))
        return torch.add(*inputs)

    addition = dataclasses.replace(measure.OPERATIONS["addition"], run=watched)
    monkeypatch.setitem(operations.OPERATIONS, "addition", addition)
    chosen = {"tokens": 8, "width": 8, "operations": ("addition",), "seconds": 0.001}
    operations.operation_rates("bf16", device="cpu", **chosen)
    assert seen == {(False, torch.bfloat16, torch.bfloat16)}
