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


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: f"_orig_mod.module.{name}",
        lambda name: f"_fsdp_wrapped_module.{name}",
        lambda name: name.replace("2.", "2._checkpoint_wrapped_module."),
    ],
)
def test_what_wrappers_put_into_names_goes(wrapped):
    state = {wrapped(name): each for name, each in model().state_dict().items()}
    assert_loads(read_checkpoint({"state_dict": state}))


def test_the_wrappers_themselves_write_such_names():
    compiled = torch.compile(nn.Sequential(model()[0], torch.compile(model()[1]), *model()[2:]))
    names = compiled.state_dict().keys()
    assert sum("_orig_mod" in name for name in names) == len(names)
    assert_loads(read_checkpoint(nn.DataParallel(compiled).state_dict()))


def test_a_part_that_is_called_module_keeps_its_name():
    state = {"module.weight": torch.randn(3, 3), "head.weight": torch.randn(3, 3)}
    assert read_checkpoint(state).weights.keys() == state.keys()
    assert read_checkpoint(state, part="head").weights.keys() == {"weight"}


@pytest.mark.parametrize("key", ["MixedPrecision", "native_amp_scaling_state", "scaler"])
def test_a_scaler_by_the_names_of_lightning(key):
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
    scaler.scale(torch.ones(()))
    state = {f"net.{name}": each for name, each in model().state_dict().items()}
    found = read_checkpoint(
        through_a_file({"pytorch-lightning_version": "2", "state_dict": state, key: scaler.state_dict()}),
        part="net",
    )
    assert (found.kind, found.scaler["scale"]) == ("torch.amp", 512.0)
    assert found.sentence.endswith("Lightning 2 wrote it.")
    assert_loads(found)


def test_apexs_state_where_lightning_kept_it():
    assert read_checkpoint({"state_dict": model().state_dict(), "amp_scaling_state": AMP}).kind == "Apex O1"


def test_deepspeeds_masters_are_elsewhere():
    found = read_checkpoint({"module": model().half().state_dict(), "ds_version": "0.14"})
    assert found.kind == "halved"
    assert "zero_to_fp32.py" in found.sentence


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halved_and_cast_to_fp32_again_is_halved(dtype):
    found = read_checkpoint(model().to(dtype).float().state_dict())
    assert (found.kind, found.masters_kept) == ("halved", False)


def test_zeros_and_ones_were_not_rounded():
    assert read_checkpoint({"weight": torch.eye(8)}).kind == "fp32"


def test_fp64_is_rounded_to_fp32():
    found = read_checkpoint(model().double().state_dict())
    assert (found.kind, found.masters_kept) == ("fp64", True)
    assert_loads(found)


def test_a_disabled_scaler_has_no_state():
    off = torch.amp.GradScaler("cpu", enabled=False).state_dict()
    found = read_checkpoint({"model": model().state_dict(), "scaler": off})
    assert (found.kind, found.scaler) == ("fp32", None)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_quantized_weights_are_refused(dtype):
    with pytest.raises(ValueError, match=rf"0\.weight is quantized, in {dtype}"):
        read_checkpoint({"0.weight": torch.zeros(4, 4).to(dtype), "0.bias": torch.zeros(4)})


def test_tensors_without_values_are_refused():
    with pytest.raises(ValueError, match="has no values"):
        read_checkpoint(nn.Linear(2, 2, device="meta").state_dict())


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
