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


def read(checkpoint, kind, masters_kept, **options):
    """Read what went through a file, hold that it is of a kind, and go on training from it."""
    file = io.BytesIO()
    torch.save(checkpoint, file)
    file.seek(0)
    found = read_checkpoint(torch.load(file, weights_only=True), **options)
    assert (found.kind, found.masters_kept) == (kind, masters_kept)
    into = model()
    into.load_state_dict(found.weights)
    assert all(each.dtype is torch.float32 for each in into.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = into(torch.randn(4, 8)).float().square().mean()
    loss.backward()
    return found


AMP = {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 17}}


def scaler_state():
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    scaler.scale(torch.ones(()))  # makes its state
    return scaler.state_dict()


def same(found, expected):
    return all(torch.equal(found.weights[name], tensor) for name, tensor in expected.state_dict().items())


def test_a_plain_state_dict():
    found = read(model().state_dict(), "fp32", True)
    assert found.scaler is None
    assert same(found, model())


@pytest.mark.parametrize("key", ["model", "state_dict", "model_state_dict"])
def test_torch_amp(key):
    optimizer = torch.optim.AdamW(model().parameters()).state_dict()
    states = {key: model().state_dict(), "optimizer": optimizer, "scaler": scaler_state(), "epoch": 3}
    found = read(states, "torch.amp", True)
    again = torch.amp.GradScaler("cpu")
    again.load_state_dict(found.scaler)
    assert again.get_scale() == 512.0
    assert same(found, model())


def test_apex_o1_and_its_scale_goes_on():
    found = read({"model": model().state_dict(), "optimizer": {}, "amp": AMP}, "Apex O1", True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(found.scaler)
    assert scaler.get_scale() == 4096.0
    assert scaler.state_dict()["_growth_tracker"] == 17
    read({"state_dict": model().state_dict(), "amp_scaling_state": AMP}, "Apex O1", True)  # by Lightning


def test_apex_o2_has_no_masters_also_when_cast_to_fp32_again():
    for written in (halved(), halved().float()):
        found = read({"model": written.state_dict(), "amp": AMP}, "Apex O2", False)
        assert same(found, halved().float())


def test_apex_fp16_optimizer_has_them():
    parameters = list(model().parameters())
    masters = [each.detach() for name, each in model().named_parameters() if not name.startswith("1.")]
    state = {
        "dynamic_loss_scale": True,
        "overflow": False,
        "first_closure_call_this_step": True,
        "optimizer_state_dict": torch.optim.SGD(parameters, lr=0.1, momentum=0.9).state_dict(),
        "fp32_from_fp16": [masters[3:], masters[:3]],  # two groups, in another order than the model's
    }
    found = read({"model": halved().state_dict(), "optimizer": state}, "Apex FP16_Optimizer", True)
    assert same(found, model())
    assert not same(read_checkpoint(halved().state_dict()), model())


def test_masters_of_another_moment_are_refused():
    masters = [each.detach() + 1 for each in model().parameters()]
    with pytest.raises(ValueError, match="8 of 8 masters round to no weight"):
        read_checkpoint({"model": halved().state_dict(), "optimizer": {"fp32_from_fp16": [masters]}})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_halved_model_is_that_also_when_cast_to_fp32_again(dtype):
    for written in (model().to(dtype), model().to(dtype).float()):
        found = read(written.state_dict(), "halved", False)
        assert same(found, model().to(dtype).float())
        assert "halved before it was saved" in found.sentence


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module."]
)
def test_what_wrappers_put_into_names_goes(prefix):
    state = {f"{prefix}{name}": each for name, each in model().state_dict().items()}
    read({"state_dict": state}, "fp32", True)
    state = {name.replace("2.", "2._checkpoint_wrapped_module."): each for name, each in state.items()}
    read({"state_dict": state}, "fp32", True)


def test_the_wrappers_themselves_write_such_names():
    compiled = torch.compile(nn.Sequential(model()[0], torch.compile(model()[1]), *model()[2:]))
    names = compiled.state_dict().keys()
    assert sum("_orig_mod" in name for name in names) == len(names)
    read(nn.DataParallel(compiled).state_dict(), "fp32", True)


def test_a_part_that_is_called_module_keeps_its_name():
    state = {"module.weight": torch.randn(3, 3), "head.weight": torch.randn(3, 3)}
    assert read_checkpoint(state).weights.keys() == state.keys()
    assert read_checkpoint(state, part="head").weights.keys() == {"weight"}


@pytest.mark.parametrize("key", ["MixedPrecision", "native_amp_scaling_state", "scaler"])
def test_a_scaler_by_the_names_of_lightning(key):
    state = {f"net.{name}": each for name, each in model().state_dict().items()}
    written = {"pytorch-lightning_version": "2", "state_dict": state, key: scaler_state()}
    found = read(written, "torch.amp", True, part="net")
    assert found.scaler["scale"] == 512.0
    assert found.sentence.endswith("Lightning 2 wrote it.")


def test_deepspeeds_masters_are_elsewhere():
    found = read({"module": model().half().state_dict(), "ds_version": "0.14"}, "halved", False)
    assert "zero_to_fp32.py" in found.sentence


def test_zeros_and_ones_were_not_rounded_and_a_disabled_scaler_has_no_state():
    off = torch.amp.GradScaler("cpu", enabled=False).state_dict()
    found = read_checkpoint({"model": {"weight": torch.eye(8)}, "scaler": off})
    assert (found.kind, found.scaler) == ("fp32", None)


def test_fp64_is_rounded_to_fp32():
    read(model().double().state_dict(), "fp64", True)


@pytest.mark.parametrize(
    ("loaded", "error", "words"),
    [
        *(
            ({"0.weight": torch.zeros(4, 4).to(dtype)}, ValueError, f"0.weight is quantized, in {dtype}")
            for dtype in (torch.float8_e4m3fn, torch.int8)
        ),
        (nn.Linear(2, 2, device="meta").state_dict(), ValueError, "has no values"),
        (model(), TypeError, "a dict, as torch.load returns"),
        ({"epoch": 3, "optimizer": {}}, ValueError, "no model's state dict in .*, which has epoch"),
        ({}, ValueError, "no model's state dict"),
    ],
)
def test_what_is_no_checkpoint(loaded, error, words):
    with pytest.raises(error, match=words):
        read_checkpoint(loaded)
