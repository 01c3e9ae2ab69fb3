"""The training loops: against loops written out by hand, and against each other."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from amp_lessons import training

pytestmark = pytest.mark.usefixtures("one_thread")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_model():
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def data(count=40):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 6, generator=draw)
    return TensorDataset(inputs, (inputs @ torch.randn(6, 3, generator=draw)).argmax(1))


@pytest.fixture
def loader():
    return DataLoader(data(), batch_size=8)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return make_model().to(DEVICE)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def by_hand(model, loader, epochs, dtype):
    """The loop of PyTorch's documentation, on a copy; returns losses and final weights."""
    model = copy.deepcopy(model)
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler(DEVICE, enabled=dtype == torch.float16)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for x, y in loader:
            with torch.autocast(DEVICE, dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        losses.append(total / len(loader))
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_training_equals_the_loop_written_out(model, loader, dtype):
    losses, weights = by_hand(model, loader, 3, dtype)
    if dtype is None:
        history = training.train_fp32(model, loader, sgd(model), F.cross_entropy, 3)
    else:
        history = training.train_with_amp(
            model, loader, sgd(model), F.cross_entropy, 3, device_type=DEVICE, dtype=dtype
        )
    assert history.losses == pytest.approx(losses, rel=1e-5)
    assert torch.equal(torch.cat([p.detach().flatten() for p in model.parameters()]), weights)
    assert history.precision == {None: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    assert len(history.loss_scales) == 3 * len(loader)
    assert history.seconds > 0
    assert (history.peak_mib is None) == (DEVICE == "cpu")


def test_accuracy_is_that_of_the_outputs(model):
    inputs, targets = data(8).tensors
    with torch.no_grad():
        right = (model(inputs.to(DEVICE)).argmax(1).cpu() == targets).float().mean().item()
    history = training.train_fp32(model, [(inputs, targets)], sgd(model), F.cross_entropy, 1)
    assert history.accuracies == [pytest.approx(right)]


def test_no_accuracy_where_targets_are_no_classes(model):
    batches = [(torch.randn(4, 6), torch.randn(4, 3))]
    history = training.train_with_amp(model, batches, sgd(model), F.mse_loss, 2)
    assert history.accuracies == [None, None]
    assert "accuracy" not in str(history)


def test_scaler_history_shows_skipped_steps(model):
    inputs, targets = data(8).tensors
    batches = [(inputs, targets), (inputs * 1e6, targets), (inputs, targets)]
    history = training.train_with_amp(model, batches, sgd(model), F.cross_entropy, 2, dtype=torch.float16)
    assert history.skipped_steps == 2
    assert history.loss_scales == [65536.0, 65536.0, 32768.0, 32768.0, 32768.0, 16384.0]
    assert history.epochs[0].skipped == (False, True, False)


def test_steps_can_be_watched_and_stopped(model, loader):
    steps = training.training_steps(model, loader, sgd(model), F.cross_entropy, 100, device_type=DEVICE)
    seen = [next(steps) for _ in range(7)]
    before = copy.deepcopy(model.state_dict())
    steps.close()
    assert [step.epoch for step in seen] == [0] * 5 + [1] * 2
    assert all(step.loss.ndim == 0 and not step.loss.requires_grad for step in seen)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_comparison_starts_from_the_same_weights_and_batches():
    seen = {}

    class Noted(nn.Sequential):
        def forward(self, inputs):
            seen.setdefault(torch.is_autocast_enabled(DEVICE), []).append(
                (self[0].weight.detach().clone(), inputs.detach().clone())
            )
            return super().forward(inputs)

    shuffled = DataLoader(data(), batch_size=8, shuffle=True)
    training.compare(lambda: Noted(*make_model()), shuffled, F.cross_entropy, 2)
    plain, mixed = seen[False], seen[True]
    assert torch.equal(plain[0][0], mixed[0][0]), "the same initial weights"
    assert all(torch.equal(a[1], b[1]) for a, b in zip(plain, mixed, strict=True)), "the same batches"
    assert not torch.equal(plain[0][1], plain[5][1]), "shuffled anew in the second epoch"


def test_comparison_with_a_loader_that_has_its_own_generator():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(data(), batch_size=8, shuffle=True, generator=generator)
    comparison = training.compare(make_model, loader, F.cross_entropy, 2, dtypes=(None, torch.bfloat16))
    assert comparison.largest_difference < 0.02


def test_comparison_agrees_and_leaves_the_generator_alone(loader):
    before = torch.get_rng_state()
    comparison = training.compare(
        make_model, loader, F.cross_entropy, 3, dtypes=(None, torch.float16, torch.bfloat16), seed=4
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert list(comparison.runs) == ["fp32", "fp16", "bf16"]
    assert 0 < comparison.largest_difference < 0.02
    again = training.compare(make_model, loader, F.cross_entropy, 3, seed=4)
    assert again.runs["fp16"].losses == comparison.runs["fp16"].losses
    other = training.compare(make_model, loader, F.cross_entropy, 3, seed=5)
    assert other.runs["fp32"].losses != comparison.runs["fp32"].losses


def test_comparison_reads_as_a_table(loader):
    comparison = training.compare(make_model, loader, F.cross_entropy, 2)
    bundle = comparison._repr_mimebundle_()
    for text in bundle.values():
        assert "fp32 loss" in text
        assert "fp16 accuracy" in text
    measured = [line for line in bundle["text/plain"].splitlines() if "seconds" in line or " s on " in line]
    assert len(measured) == 2
    assert all(line.startswith("[measured]") for line in measured), (
        "what differs between runs is marked as such"
    )


def run_with(*losses):
    return training.History("fp32", "cpu", tuple(training.Epoch(loss, None, 1.0, (), ()) for loss in losses))


@pytest.mark.parametrize(
    ("reference", "other", "largest"),
    [
        ((1.0, 0.5), (1.001, 0.5), pytest.approx(0.001)),
        ((1.0, 0.5), (1.001, math.nan), math.inf),
        ((1.0, 0.5), (math.nan, 0.5), math.inf),
        ((1.0, math.inf), (1.0, math.inf), math.inf),
        ((math.nan,), (1.0,), math.inf),
        ((0.0, 1.0), (0.0, 1.5), pytest.approx(0.5)),
        ((0.0, 1.0), (0.1, 1.0), math.inf),
        ((1e-310,), (1e300,), math.inf),
    ],
)
def test_a_run_that_broke_is_not_passed_over(reference, other, largest):
    runs = {"fp32": run_with(*reference), "bf16": run_with(*reference), "fp16": run_with(*other)}
    assert training.Comparison(runs, 0).largest_difference == largest


def test_a_loss_of_zero_is_no_difference(loader):
    comparison = training.compare(make_model, loader, lambda o, _: (o * 0).sum(), 1, device="cpu")
    assert comparison.largest_difference == 0.0


def test_progress_bar_only_when_asked_for(model, loader, monkeypatch):
    shown = []
    monkeypatch.setattr(
        training.bars, "with_bar", lambda steps, what, total: shown.append((what, total)) or steps
    )
    training.train_fp32(model, loader, sgd(model), F.cross_entropy, 2)
    assert shown == []
    training.train_fp32(model, loader, sgd(model), F.cross_entropy, 2, progress=True)
    assert shown == [("training in fp32", 2 * len(loader))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": torch.float64}, "dtype must be torch.float16 or torch.bfloat16"),
        ({"epochs": 0}, "positive integer"),
        ({"epochs": True}, "positive integer"),
        ({"model": nn.ReLU()}, "ReLU has no parameters"),
        ({"device_type": "xpu"}, "model is on"),
        ({"loader": iter([])}, "0 of 1 epochs"),
    ],
)
def test_wrong_arguments_are_refused_in_words(model, loader, change, message):
    usual = {"model": model, "loader": loader, "loss_fn": F.cross_entropy, "epochs": 1}
    with pytest.raises(ValueError, match=message):
        training.train_with_amp(optimizer=sgd(model), **{**usual, **change})


def test_a_loader_that_ends_after_one_epoch_is_named(model, loader):
    with pytest.raises(ValueError, match="1 of 2 epochs"):
        training.train_fp32(model, iter(list(loader)), sgd(model), F.cross_entropy, 2)


def test_a_model_without_parameters_is_nothing_to_train(model, loader):
    with pytest.raises(ValueError, match="nothing to train"):
        next(training.training_steps(nn.ReLU(), loader, sgd(model), F.cross_entropy, 1, device_type="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_named(loader):
    with pytest.raises(ValueError, match="no cuda device here"):
        training.compare(make_model, loader, F.cross_entropy, 1, device="cuda")


def test_the_same_precision_twice_is_refused(loader):
    with pytest.raises(ValueError, match="once"):
        training.compare(make_model, loader, F.cross_entropy, 1, dtypes=(None, None))
