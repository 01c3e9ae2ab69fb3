"""A probe answers as fresh backward passes do, and runs only what it does not know."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from amp_lessons.scaling import LossScaleProbe, backward_at, backward_by_layer, census, gradients
from tests.cuda import CUDA

SCALE = 2.0**12


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def model():
    return perceptron()


@pytest.fixture
def batch():
    return torch.randn(5, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1])


@pytest.fixture
def probe(model, batch):
    return LossScaleProbe(model, batch, small_loss)


@pytest.fixture
def passes(model):
    """Collect, for each forward pass, the dtype that came out of it."""
    seen = []
    model.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    return seen


def small_loss(output, target):
    return 1e-5 * cross_entropy(output, target)


def test_layers_are_named_without_running_anything(probe, passes):
    assert probe.layers == ("0", "1", "3")
    assert passes == []


def test_the_true_gradients_are_computed_once(probe, passes):
    for exponent in range(3):
        probe.at(2.0**exponent)
    assert passes == [torch.float32, torch.float16, torch.float16, torch.float16]


def test_the_same_question_runs_nothing(probe, passes):
    first = probe.at(SCALE)
    first_passes = len(passes)
    for device_type in (None, "cpu", torch.device("cpu")):
        assert probe.at(int(SCALE), torch.float16, device_type) == first
    assert len(passes) == first_passes


def test_an_answer_that_the_caller_changes_is_answered_anew(probe):
    first = probe.at(SCALE)
    kept = dict(first)
    first.clear()
    assert probe.at(SCALE) == kept


CHANGES = {
    "a weight in place": lambda model, batch: nn.init.normal_(model[0].weight),
    "a weight through .data": lambda model, batch: model[0].weight.data.mul_(3.0),
    "another parameter": lambda model, batch: setattr(model[0], "weight", nn.Parameter(torch.randn(8, 6))),
    "a frozen layer": lambda model, batch: model[3].requires_grad_(False),
    "a weight of a frozen layer": lambda model, batch: model[3].requires_grad_(False).weight.data.mul_(3.0),
    "a buffer in eval mode": lambda model, batch: model.eval()[1].running_var.mul_(9.0),
    "eval mode": lambda model, batch: model.eval(),
    "another activation": lambda model, batch: model.__setitem__(2, nn.Tanh()),
    "another layer": lambda model, batch: model.insert(3, nn.Linear(8, 8)),
    "inputs": lambda model, batch: batch[0].mul_(3.0),
    "targets": lambda model, batch: batch[1].zero_(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_after_a_change_both_passes_run_again(change, probe, model, batch, passes):
    stale = probe.at(SCALE)
    passes.clear()
    change(model, batch)
    found = probe.at(SCALE)
    assert passes == [torch.float32, torch.float16]
    assert found == backward_by_layer(model, batch, small_loss, SCALE) != stale


def test_a_changed_weight_that_is_changed_back_runs_nothing(probe, model, passes):
    probe.at(SCALE)
    passes.clear()
    model[0].weight.data = model[0].weight.data.clone()
    assert probe.at(SCALE)
    assert passes == []


def test_a_batch_may_be_a_list_whose_parts_are_replaced(model, batch):
    parts = list(batch)
    probe = LossScaleProbe(model, parts, small_loss)
    stale = probe.at(SCALE)
    parts[0] = 3 * parts[0]
    assert probe.at(SCALE) == backward_by_layer(model, parts, small_loss, SCALE) != stale


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_dropout_drops_the_same_values_in_every_pass_whatever_was_drawn_between(device, batch):
    model = nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3)).to(device)
    there = tuple(part.to(device) for part in batch)
    probe = LossScaleProbe(model, there, cross_entropy)
    torch.manual_seed(3)
    fresh = backward_by_layer(model, there, cross_entropy, SCALE, torch.bfloat16)
    assert probe.at(SCALE, torch.bfloat16) == fresh
    torch.rand(1, device=device)
    before = torch.get_rng_state()
    probe.at(1.0)
    assert torch.equal(torch.get_rng_state(), before)
    assert probe.at(SCALE, torch.bfloat16) == fresh
    assert sum(layer.underflowed for layer in fresh.values()) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_mode_of_the_caller_makes_no_difference(mode, probe, passes):
    with mode():
        inside = probe.at(SCALE)
    assert probe.at(SCALE) == inside
    assert len(passes) == 2


def test_a_batch_made_under_inference_mode_is_welcome(model):
    with torch.inference_mode():
        batch = torch.ones(5, 6), torch.zeros(5, dtype=torch.long)
    assert LossScaleProbe(model, batch, small_loss).at(SCALE) == backward_by_layer(
        model, batch, small_loss, SCALE
    )


def test_a_pass_that_raises_is_forgotten(model, batch):
    def loss_of_two(output, target):
        return output.sum() if len(output) == 5 else output

    parts = list(batch)
    probe = LossScaleProbe(model, parts, loss_of_two)
    known = probe.at(SCALE)
    parts[0] = batch[0][:2]
    for _ in range(2):
        with pytest.raises(ValueError, match="one number"):
            probe.at(SCALE)
    parts[0] = batch[0]
    assert probe.at(SCALE) == known


@pytest.mark.parametrize(
    ("question", "error", "message"),
    [
        ((0.0,), ValueError, "positive and finite"),
        (("2",), TypeError, "a loss scale is a number"),
        ((1.0, torch.float64), ValueError, "autocast runs in"),
        ((1.0, torch.float16, "mps"), ValueError, 'the model is on "cpu"'),
    ],
)
def test_an_impossible_question_is_refused_whoever_is_asked(question, error, message, probe, model, batch):
    asked = [partial(each, model, batch, small_loss) for each in (backward_at, backward_by_layer)]
    for ask in (probe.at, *asked):
        with pytest.raises(error, match=message):
            ask(*question)


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_on_a_device_the_slider_counts_as_fresh_passes_do_and_the_cpu_counts_the_same(device, batch):
    model, on_device = perceptron().to(device), tuple(part.to(device) for part in batch)
    probe = LossScaleProbe(model, on_device, small_loss)
    for scale, dtype in [(1.0, torch.float16), (SCALE, torch.float16), (2.0**40, torch.bfloat16)]:
        assert probe.at(scale, dtype) == backward_by_layer(model, on_device, small_loss, scale, dtype)
    assert probe.at(SCALE, device_type=device) == backward_by_layer(model, on_device, small_loss, SCALE)
    for layer, each in gradients(model, on_device, small_loss).items():
        assert census(each, scale=SCALE) == census(each.cpu(), scale=SCALE), layer
