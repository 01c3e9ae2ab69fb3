"""The tables that PyTorch is asked for, against its header and its test lists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses import fake_tensor

from amp_lessons import autocast
from amp_lessons.autocast import Policy
from amp_lessons.autocast.cast_policy import observation, policies
from tests.autocast.pytorch_lists import cases, lists

DEVICES = ["cuda", "cpu", "mps", "xpu"]


@pytest.fixture
def fresh_tables():
    """Ask again, and forget what was answered under a patch."""
    policies._entries.cache_clear()
    yield
    policies._entries.cache_clear()


def policies_of(device_type, base):
    """The policies of all listed overloads of one operation."""
    table = autocast.policy(device_type)
    return {kind for name, kind in table.items() if name.partition(".")[0] == f"aten::{base}"}


@pytest.mark.parametrize("device_type", DEVICES)
def test_every_registered_kernel_has_a_policy(device_type):
    keys = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU", "mps": "AutocastMPS", "xpu": "AutocastXPU"}
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(keys[device_type])
    assert set(autocast.policy(device_type)) == {name for name in registered if name.startswith("aten::")}
    assert policies_of(device_type, "linear") == {Policy.LOWER_PRECISION}


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_tables_agree_with_the_macros_of_the_header(device_type):
    text = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()
    table = autocast.policy(device_type)
    expected = {
        "AT_FORALL_LOWER_PRECISION_FP": Policy.LOWER_PRECISION,
        "AT_FORALL_FP32": Policy.FP32,
        "AT_FORALL_FP32_SET_OPT_DTYPE": Policy.FP32_SET_OPT_DTYPE,
        "AT_FORALL_PROMOTE": Policy.PROMOTE,
    }
    seen = 0
    for macro, kind in expected.items():
        lines = text.split(f"#define {macro}(_)", 1)[1].split("#define")[0].splitlines()
        for entry in re.findall(r"_\(([^)]+)\)", "\n".join(lines)):
            name = "aten::" + ".".join(part.strip() for part in entry.split(","))
            assert table[name] is kind, name
            seen += 1
    norms = [name for name in table if name.startswith("aten::norm.")]
    assert len(norms) >= 2
    assert {table[name] for name in norms} == {Policy.FP32_APPEND_DTYPE}
    assert seen + len(norms) == len(policies.header_lists()) > 100


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch_16", Policy.LOWER_PRECISION),
        ("nn_16", Policy.LOWER_PRECISION),
        ("torch_fp32", Policy.FP32),
        ("nn_fp32", Policy.FP32),
    ],
)
def test_cpu_table_agrees_with_pytorchs_test_lists(name, kind):
    """CUDA's is held by its header, and by its own lists, which ``test_rules`` runs."""
    for operation, *_ in cases(lists.AutocastCPUTestLists("cpu"), name):
        assert policies_of("cpu", operation) == {kind}, operation


def test_what_the_lessons_say_about_the_two_devices():
    cuda, cpu = autocast.policy("cuda"), autocast.policy("cpu")
    assert cuda["aten::softmax.int"] is Policy.FP32_SET_OPT_DTYPE
    assert cuda["aten::layer_norm"] is Policy.FP32
    assert cuda["aten::binary_cross_entropy"] is Policy.BANNED
    assert cpu["aten::binary_cross_entropy"] is Policy.FP32
    assert cpu["aten::cat"] is Policy.PROMOTE
    on_cuda_alone = "softmax.int layer_norm exp log sum pow.Tensor_Scalar group_norm cumsum"
    on_neither = "batch_norm mean var mul.Tensor relu sqrt"
    for name in f"{on_cuda_alone} {on_neither}".split():
        assert (f"aten::{name}" in cuda) == (name in on_cuda_alone.split())
        assert f"aten::{name}" not in cpu


def test_entries_say_how_they_were_found_out_and_no_caller_can_spoil_them():
    cuda = autocast.entries("cuda")
    assert cuda["aten::softmax.int"].evidence.endswith("lists it as fp32_set_opt_dtype")
    assert "fake" in cuda["aten::cudnn_convolution"].evidence
    assert cuda["aten::binary_cross_entropy"].message.startswith("torch.nn.functional.binary_cross_entropy")
    assert cuda["aten::linear"].message == ""
    autocast.policy("cuda").clear()
    cuda.clear()
    assert autocast.policy("cuda")
    with pytest.raises(ValueError, match="unknown device type 'tpu'; choose one of cuda, cpu, mps, xpu"):
        autocast.policy("tpu")


def test_tables_do_not_depend_on_the_autocast_that_is_active_nor_on_the_callers_mode(fresh_tables):
    expected = [autocast.entries(device_type) for device_type in DEVICES]
    for around in (torch.autocast("cpu", dtype=torch.float16), torch.inference_mode()):
        policies._entries.cache_clear()
        with around:
            dtype = torch.get_autocast_dtype("cpu")
            assert [autocast.entries(device_type) for device_type in DEVICES] == expected
            assert torch.get_autocast_dtype("cpu") is dtype
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_atlas_and_differences():
    atlas = autocast.atlas()
    assert set(atlas["aten::softmax.int"]) == set(DEVICES)
    assert atlas["aten::cat"] == {"cuda": None, "cpu": Policy.PROMOTE, "mps": None, "xpu": None}
    differences = autocast.differences()
    assert differences["aten::softmax.int"] == (Policy.FP32_SET_OPT_DTYPE, None)
    assert differences["aten::fft_fft"] == (None, Policy.FP32)
    assert "aten::linear" not in differences
    assert autocast.differences("cuda", "cuda") == {}


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_no_device_is_started_to_ask_about_it(fresh_tables, monkeypatch, device_type):
    def started(device):
        raise AssertionError(f"{device} was asked for a tensor")

    expected = autocast.entries(device_type)
    policies._entries.cache_clear()
    monkeypatch.setattr(fake_tensor, "init_gpu_context", started)
    assert autocast.entries(device_type) == expected
    assert fake_tensor.init_gpu_context is started


def gone(*_):
    raise AttributeError("no such function")


LISTING, PASSIVE = (
    "_dispatch_get_registrations_for_dispatch_key",
    observation.Observation((None,), False, True, ""),
)


@pytest.mark.parametrize(
    ("owner", "name", "changed", "device_type", "words"),
    [
        (torch._C, LISTING, gone, "cuda", "does not list its autocast kernels for cuda"),
        (torch._C, LISTING, lambda key: [], "mps", "no autocast kernels for mps"),
        (policies, "observe", lambda *_: PASSIVE, "cpu", "no known policy"),
        (policies, "header_lists", lambda: {"aten::linear": "fp32"}, "cuda", "itself on aten::linear"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_never_guessed(
    fresh_tables, monkeypatch, owner, name, changed, device_type, words
):
    monkeypatch.setattr(owner, name, changed)
    with pytest.raises(autocast.UnreadablePyTorchError, match=words):
        autocast.policy(device_type)


def test_what_cannot_be_asked_is_as_its_overloads_which_have_to_agree():
    def found(**kinds):
        names = {"sum": "aten::sum", "by_number": "aten::sum.dim_IntList", "mean": "aten::mean"}
        known = {names[each]: policies.Entry(names[each], kind, "") for each, kind in kinds.items()}
        return policies._entry_of_its_overloads("aten::sum.dim_DimnameList", known)

    entry = found(sum=Policy.FP32, by_number=Policy.FP32, mean=Policy.PROMOTE)
    assert (entry.op, entry.policy) == ("aten::sum.dim_DimnameList", Policy.FP32)
    with pytest.raises(autocast.UnreadablePyTorchError, match=r"sum do not agree: \['BANNED', 'FP32'\]"):
        found(sum=Policy.BANNED, by_number=Policy.FP32)
    with pytest.raises(autocast.UnreadablePyTorchError, match=r"do not agree: \[\]"):
        found(mean=Policy.PROMOTE)


def test_a_build_without_headers_still_answers(monkeypatch, fresh_tables, tmp_path):
    expected = autocast.policy("cuda")
    policies._entries.cache_clear()
    monkeypatch.setattr(policies, "header_path", lambda: tmp_path / "autocast_mode.h")
    assert autocast.policy("cuda") == expected
    assert "lists it as" not in autocast.entries("cuda")["aten::linear"].evidence


_FIRST = """
import importlib, sys
import torch
from torch._subclasses import fake_tensor

torch.backends.cuda.is_built = lambda: True
torch.cuda.is_available = lambda: False
first = []
run, made = torch.autograd.graph._engine_run_backward, fake_tensor.FakeTensorMode.__init__

def backward(*args, **options):
    first.append("backward")
    return run(*args, **options)

def mode(*args, **options):
    first.append("fake tensors")
    return made(*args, **options)

torch.autograd._engine_run_backward = backward
fake_tensor.FakeTensorMode.__init__ = mode
importlib.import_module(sys.argv[1])
from amp_lessons import autocast
autocast.policy("cuda")
print(first[0], "fake tensors" in first)
"""


@pytest.mark.parametrize(
    "module", ["amp_lessons.course.exercises.accumulate_gradients.check", "amp_lessons.autocast.running"]
)
def test_autograd_starts_before_the_first_fake_tensor_so_that_forks_can_train_with_pytorchs_cuda_build(
    module,
):
    said = subprocess.run([sys.executable, "-c", _FIRST, module], capture_output=True, text=True, check=True)
    assert said.stdout.split("\n")[0] == "backward True"
