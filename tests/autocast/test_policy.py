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
from amp_lessons.autocast.cast_policy import header, observation, policies
from tests.autocast.pytorch_lists import cases, lists

DEVICES = ["cuda", "cpu", "mps", "xpu"]
IN_FP32 = {Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE}
CUDA_LISTS, CPU_LISTS = lists.AutocastTestLists("cpu"), lists.AutocastCPUTestLists("cpu")


@pytest.fixture
def fresh_tables():
    """Ask again, and forget what was answered under a patch."""
    policies._entries.cache_clear()
    yield
    policies._entries.cache_clear()


def policies_of(device_type: str, base: str) -> set[Policy]:
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
    assert seen + len(norms) == len(header.header_lists()) > 100


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("torch_fp16", {Policy.LOWER_PRECISION}),
        ("nn_fp16", {Policy.LOWER_PRECISION}),
        ("linalg_fp16", {Policy.LOWER_PRECISION}),
        ("torch_fp32", IN_FP32),
        ("nn_fp32", IN_FP32),
        ("torch_need_autocast_promote", {Policy.PROMOTE}),
        ("banned", {Policy.BANNED}),
    ],
)
def test_cuda_table_agrees_with_pytorchs_test_lists(name, allowed):
    for operation, *_ in getattr(CUDA_LISTS, name):
        assert policies_of("cuda", operation), operation
        assert policies_of("cuda", operation) <= allowed, operation


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
    for operation, *_ in cases(CPU_LISTS, name):
        assert policies_of("cpu", operation) == {kind}, operation


def test_what_the_lessons_say_about_the_two_devices():
    cuda, cpu = autocast.policy("cuda"), autocast.policy("cpu")
    assert cuda["aten::softmax.int"] is Policy.FP32_SET_OPT_DTYPE
    assert cuda["aten::layer_norm"] is Policy.FP32
    assert cuda["aten::binary_cross_entropy"] is Policy.BANNED
    assert cpu["aten::binary_cross_entropy"] is Policy.FP32
    assert cpu["aten::cat"] is Policy.PROMOTE
    for name in (
        "softmax.int",
        "layer_norm",
        "exp",
        "log",
        "sum",
        "pow.Tensor_Scalar",
        "group_norm",
        "cumsum",
    ):
        assert f"aten::{name}" in cuda
        assert f"aten::{name}" not in cpu
    for name in ("batch_norm", "mean", "var", "mul.Tensor", "relu", "sqrt"):
        assert f"aten::{name}" not in cuda
        assert f"aten::{name}" not in cpu


def test_apples_table_differs_in_ways_of_its_own():
    mps = autocast.policy("mps")
    assert mps["aten::batch_norm"] is Policy.FP32
    assert Policy.BANNED not in mps.values()


def test_entries_say_how_they_were_found_out():
    cuda = autocast.entries("cuda")
    assert cuda["aten::softmax.int"].evidence.endswith("lists it as fp32_set_opt_dtype")
    assert "fake" in cuda["aten::cudnn_convolution"].evidence
    assert cuda["aten::binary_cross_entropy"].message.startswith("torch.nn.functional.binary_cross_entropy")
    assert cuda["aten::linear"].message == ""


def test_tables_do_not_depend_on_the_autocast_that_is_active(fresh_tables):
    expected = {device_type: autocast.policy(device_type) for device_type in DEVICES}
    policies._entries.cache_clear()
    with torch.autocast("cpu", dtype=torch.float16):
        assert {device_type: autocast.policy(device_type) for device_type in DEVICES} == expected
        assert torch.get_autocast_dtype("cpu") is torch.float16
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_a_caller_cannot_spoil_the_tables():
    autocast.policy("cpu").clear()
    autocast.entries("cpu").clear()
    assert autocast.policy("cpu")


def test_unknown_device():
    with pytest.raises(ValueError, match="unknown device type 'tpu'; choose one of cuda, cpu, mps, xpu"):
        autocast.policy("tpu")


def test_atlas_and_differences():
    atlas = autocast.atlas()
    assert set(atlas["aten::softmax.int"]) == set(DEVICES)
    assert atlas["aten::cat"] == {"cuda": None, "cpu": Policy.PROMOTE, "mps": None, "xpu": None}
    differences = autocast.differences()
    assert differences["aten::softmax.int"] == (Policy.FP32_SET_OPT_DTYPE, None)
    assert differences["aten::fft_fft"] == (None, Policy.FP32)
    assert "aten::linear" not in differences
    assert autocast.differences("cuda", "cuda") == {}


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
def test_the_mode_of_the_caller_makes_no_difference(fresh_tables, device_type):
    expected = autocast.entries(device_type)
    policies._entries.cache_clear()
    with torch.inference_mode():
        assert autocast.entries(device_type) == expected


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_no_device_is_started_to_ask_about_it(fresh_tables, monkeypatch, device_type):
    def started(device):
        raise AssertionError(f"{device} was asked for a tensor")

    expected = autocast.entries(device_type)
    policies._entries.cache_clear()
    monkeypatch.setattr(fake_tensor, "init_gpu_context", started)
    assert autocast.entries(device_type) == expected
    assert fake_tensor.init_gpu_context is started


class TestWhenPyTorchChanges:
    """A table that cannot be read is refused, never guessed."""

    def test_the_list_of_kernels_is_gone(self, monkeypatch, fresh_tables):
        monkeypatch.delattr(torch._C, "_dispatch_get_registrations_for_dispatch_key")
        with pytest.raises(
            autocast.UnreadablePyTorchError, match="does not list its autocast kernels for cuda"
        ):
            autocast.policy("cuda")

    def test_the_list_of_kernels_is_empty(self, monkeypatch, fresh_tables):
        monkeypatch.setattr(torch._C, "_dispatch_get_registrations_for_dispatch_key", lambda key: [])
        with pytest.raises(autocast.UnreadablePyTorchError, match="no autocast kernels for mps"):
            autocast.policy("mps")

    def test_a_kernel_behaves_in_a_new_way(self, monkeypatch, fresh_tables):
        passive = observation.Observation((None,), asked_for_fp32=False, started=True, refusal="")
        monkeypatch.setattr(policies, "observe", lambda *_: passive)
        with pytest.raises(autocast.UnreadablePyTorchError, match="no known policy"):
            autocast.policy("cpu")

    def test_header_and_kernel_disagree(self, monkeypatch, fresh_tables):
        monkeypatch.setattr(policies, "header_lists", lambda: {"aten::linear": "fp32"})
        with pytest.raises(autocast.UnreadablePyTorchError, match="contradicts itself on aten::linear"):
            autocast.policy("cuda")

    def test_what_cannot_be_asked_is_as_its_overloads_which_have_to_agree(self):
        found = {
            name: policies.Entry(name, Policy.FP32, "") for name in ("aten::sum", "aten::sum.dim_IntList")
        }
        found["aten::mean"] = policies.Entry("aten::mean", Policy.PROMOTE, "")  # another operation's
        entry = policies._entry_of_its_overloads("aten::sum.dim_DimnameList", found)
        assert (entry.op, entry.policy) == ("aten::sum.dim_DimnameList", Policy.FP32)
        found["aten::sum"] = policies.Entry("aten::sum", Policy.BANNED, "")
        with pytest.raises(autocast.UnreadablePyTorchError, match=r"sum do not agree: \['BANNED', 'FP32'\]"):
            policies._entry_of_its_overloads("aten::sum.dim_DimnameList", found)
        with pytest.raises(autocast.UnreadablePyTorchError, match=r"do not agree: \[\]"):
            policies._entry_of_its_overloads("aten::prod.dim_Dimname", found)

    def test_a_build_without_headers_still_answers(self, monkeypatch, fresh_tables, tmp_path):
        expected = autocast.policy("cuda")
        policies._entries.cache_clear()
        monkeypatch.setattr(header, "header_path", lambda: tmp_path / "autocast_mode.h")
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
