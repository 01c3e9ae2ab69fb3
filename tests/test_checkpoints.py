"""Checkpoints as Apex and PyTorch have written them, made here, read and trained on from."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from amp_lessons.checkpoints import read_checkpoint


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 16), nn.Linear(16, 4))


def halved():
    """Return a model in fp16 with its BatchNorm in fp32, as Apex made it."""
    half = model().half()
    half[1].float()
    return half


def through_a_file(checkpoint):
    file = io.BytesIO()
    torch.save(checkpoint, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_loads(found):
    into = model()
    into.load_state_dict(found.weights)
    assert all(each.dtype is torch.float32 for each in into.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = into(torch.randn(4, 8)).float().square().mean()
    loss.backward()


AMP = {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 17}}


def same(found, expected):
    return all(torch.equal(found.weights[name], tensor) for name, tensor in expected.state_dict().items())


def test_a_plain_state_dict():
    found = read_checkpoint(through_a_file(model().state_dict()))
    assert (found.kind, found.masters_kept, found.scaler) == ("fp32", True, None)
    assert same(found, model())


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict"])
def test_torch_amp(key):
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    scaler.scale(torch.ones(()))  # makes its state
    optimizer = torch.optim.AdamW(model().parameters())
    found = read_checkpoint(
        through_a_file(
            {
                key: model().state_dict(),
                "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(),
                "epoch": 3,
            }
        )
    )
    assert (found.kind, found.masters_kept) == ("torch.amp", True)
    again = torch.amp.GradScaler("cpu")
    again.load_state_dict(found.scaler)
    assert again.get_scale() == 512.0
    assert same(found, model())
    assert_loads(found)


def test_apex_o1_and_its_scale_goes_on():
    found = read_checkpoint(through_a_file({"model": model().state_dict(), "optimizer": {}, "amp": AMP}))
    assert (found.kind, found.masters_kept) == ("Apex O1", True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(found.scaler)
    assert scaler.get_scale() == 4096.0
    assert scaler.state_dict()["_growth_tracker"] == 17
    assert_loads(found)


@pytest.mark.parametrize(
    "written", [halved, lambda: halved().float()], ids=["in 16 bits", "cast to fp32 again"]
)
def test_apex_o2_has_no_masters(written):
    found = read_checkpoint(through_a_file({"model": written().state_dict(), "amp": AMP}))
    assert (found.kind, found.masters_kept) == ("Apex O2", False)
    assert same(found, halved().float())
    assert_loads(found)


def test_apex_fp16_optimizer_has_them():
    parameters = list(model().parameters())
    masters = [each.detach() for name, each in model().named_parameters() if not name.startswith("1.")]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    state = {
        "dynamic_loss_scale": True,
        "overflow": False,
        "first_closure_call_this_step": True,
        "optimizer_state_dict": optimizer.state_dict(),
        "fp32_from_fp16": [masters[3:], masters[:3]],  # two groups, in another order than the model's
    }
    found = read_checkpoint(through_a_file({"model": halved().state_dict(), "optimizer": state}))
    assert (found.kind, found.masters_kept) == ("Apex FP16_Optimizer", True)
    assert same(found, model())
    assert not same(read_checkpoint(halved().state_dict()), model())
    assert_loads(found)


def test_masters_of_another_moment_are_refused():
    masters = [each.detach() + 1 for each in model().parameters()]
    with pytest.raises(ValueError, match="8 of 8 masters round to no weight"):
        read_checkpoint({"model": halved().state_dict(), "optimizer": {"fp32_from_fp16": [masters]}})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_halved_model(dtype):
    found = read_checkpoint(through_a_file(model().to(dtype).state_dict()))
    assert (found.kind, found.masters_kept) == ("halved", False)
    assert same(found, model().to(dtype).float())
    assert "halved before it was saved" in found.sentence
    assert_loads(found)


def test_the_prefix_of_data_parallel_goes():
    found = read_checkpoint(
        {"state_dict": {f"module.{name}": each for name, each in model().state_dict().items()}}
    )
    assert_loads(found)


@pytest.mark.parametrize(
    ("loaded", "error", "words"),
    [
        (model(), TypeError, "a dict, as torch.load returns"),
        (
            {"epoch": 3, "optimizer": {}},
            ValueError,
            "no model's state dict in this checkpoint, which has epoch",
        ),
        ({}, ValueError, "no model's state dict"),
    ],
)
def test_what_is_no_checkpoint(loaded, error, words):
    with pytest.raises(error, match=words):
        read_checkpoint(loaded)
