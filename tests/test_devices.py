from __future__ import annotations

import platform
import re
import timeit
from types import SimpleNamespace

import pytest
import torch

from amp_lessons import devices
from tests.real_clock import real_clock
from tests.stored_lessons import printed

# Product name, compute capability, the formats its tensor cores multiply, bf16: from NVIDIA's data sheets.
FP8 = {"fp8_e4m3", "fp8_e5m2"}
AMPERE = {"fp16", "bf16", "tf32"}
GPUS = [
    ("Tesla P100-PCIE-16GB", (6, 0), set(), "emulated"),
    ("Tesla V100-SXM2-32GB", (7, 0), {"fp16"}, "emulated"),
    ("Tesla T4", (7, 5), {"fp16"}, "emulated"),
    ("NVIDIA GeForce RTX 2080 Ti", (7, 5), {"fp16"}, "emulated"),
    ("NVIDIA GeForce GTX 1660 SUPER", (7, 5), set(), "emulated"),
    ("NVIDIA T1000 8GB", (7, 5), set(), "emulated"),
    ("NVIDIA A100-SXM4-80GB", (8, 0), AMPERE, "native"),
    ("NVIDIA GeForce RTX 3090", (8, 6), AMPERE, "native"),
    ("NVIDIA L4", (8, 9), AMPERE | FP8, "native"),
    ("NVIDIA H100 80GB HBM3", (9, 0), AMPERE | FP8, "native"),
    ("NVIDIA B200", (10, 0), AMPERE | FP8 | {"fp4_e2m1"}, "native"),
    ("NVIDIA GeForce RTX 5090", (12, 0), AMPERE | FP8 | {"fp4_e2m1"}, "native"),
]


@pytest.fixture
def plug_in(monkeypatch):
    """Make PyTorch report one GPU of the given name and capability, on which kernels run."""

    def plug(name, capability):
        version = dict(zip(("major", "minor"), capability, strict=True))
        properties = SimpleNamespace(name=name, total_memory=16 * 2**30, **version)
        monkeypatch.setattr(devices, "cuda_obstacle", lambda: None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
        # With emulation counted, every GPU says yes: the question that must not be asked.
        monkeypatch.setattr("torch.cuda._check_bf16_tensor_supported", lambda device: True)

    return plug


@pytest.fixture
def pull_out(monkeypatch):
    monkeypatch.setattr(devices, "cuda_obstacle", lambda: "No CUDA GPUs are available")


@pytest.mark.parametrize(("name", "capability", "formats", "bf16"), GPUS, ids=[gpu[0] for gpu in GPUS])
def test_each_generation_of_gpus_is_told_apart(plug_in, name, capability, formats, bf16):
    plug_in(name, capability)
    machine = devices.describe()
    assert machine.device == "cuda"
    assert (machine.name, machine.capability, machine.memory_mib) == (name, capability, 16384)
    assert (set(machine.tensor_core_formats), machine.bf16) == (formats, bf16)
    lacks = "no tensor cores" if not formats else "only emulates bf16" if bf16 == "emulated" else None
    assert [name in each and lacks in each for each in machine.warnings] == [True] * (lacks is not None)


def test_without_a_gpu_the_cpu_is_described(pull_out):
    machine = devices.describe()
    assert (machine.device, machine.gpu, machine.capability) == ("cpu", None, None)
    assert machine.tensor_core_formats == ()
    assert machine.name == machine.cpu.label
    assert machine.name.startswith(f"{devices.cpu_name()} (")
    assert machine.cpu.threads == torch.get_num_threads()
    assert "No CUDA GPUs are available" in machine.warnings[0]


def test_processors_of_one_name_are_told_apart_by_their_bf16():
    for bf16, said in (("native", " with bf16"), ("emulated", ", bf16 emulated"), ("fallback", ", no bf16")):
        cpu = devices.Cpu("AMD EPYC", 2, 4096, "AVX512", (), bf16, "fallback")
        assert cpu.label == f"AMD EPYC (AVX512{said})"


def test_stored_lessons_name_the_processor_that_their_times_of_bf16_are_of():
    machine, steps = printed("00", "machine-run"), printed("05", "fp16-cpu-run")
    assert ("no bf16)" in machine) == (devices.SLOW_BF16 in machine)
    times = float(re.search(r"bf16: .* ms, ([\d.]+)x as fast", steps)[1])
    assert times < 1 or "no bf16)" not in steps


def test_rocm_gpus_are_not_given_nvidias_tensor_cores(plug_in, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0.1")
    monkeypatch.setattr(torch.version, "cuda", None)
    plug_in("AMD Instinct MI300X", (9, 4))
    machine = devices.describe()
    assert (machine.tensor_core_formats, machine.bf16) == ((), "native")
    assert machine.torch_build == "ROCm 7.0.1"
    assert "AMD" in machine.warnings[0]


def test_default_device_computes_and_a_cpu_build_is_the_obstacle_it_names():
    device = devices.default_device()
    assert device.type == devices.describe().device
    assert torch.ones(2, device=device).sum().item() == 2.0
    if torch.version.cuda is None and torch.version.hip is None:
        assert devices.cuda_obstacle() == "this build of PyTorch is for the CPU only"


@pytest.mark.parametrize(
    ("said", "rest"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040)", ". Please update"),
        (
            "CUDA error: no kernel image is available for execution on the device",
            "\nCUDA kernel errors might",
        ),
    ],
)
def test_a_gpu_that_cannot_compute_is_not_used(monkeypatch, said, rest):
    def refuse(*args, **kwargs):
        raise RuntimeError(said + rest)

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", refuse)
    assert devices.cuda_obstacle() == said
    assert devices.default_device() == torch.device("cpu")


@pytest.fixture
def matmul():
    """PyTorch's settings of products, as they were again at the end."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    yield settings
    settings.fp32_precision = before


def test_tf32_is_read_live_through_either_api_and_asking_does_not_break_the_older_one(matmul):
    for set_to in ("tf32", "ieee"):
        matmul.fp32_precision = set_to
        assert devices.describe().matmul_fp32_precision == set_to  # here the older getters may raise
    for older, newer in (("high", "tf32"), ("highest", "ieee")):
        torch.set_float32_matmul_precision(older)
        assert devices.describe().matmul_fp32_precision == newer
        assert matmul.allow_tf32 == (older == "high")
        assert torch.get_float32_matmul_precision() == older


def test_missing_names_the_hardware_in_one_sentence(plug_in, pull_out):
    cpu_only = devices.describe()
    said = f"This needs an NVIDIA GPU; here is only a CPU ({cpu_only.cpu.name})."
    assert devices.missing("gpu", cpu_only) == said
    assert "FP8 tensor cores" in devices.missing("fp8_e4m3", cpu_only)
    plug_in("Tesla T4", (7, 5))
    assert devices.missing("gpu") is devices.missing("fp16") is None
    said = "This needs BF16 tensor cores (compute capability 8.0 or later); Tesla T4 (7.5) has none."
    assert devices.missing("bf16") == said
    with pytest.raises(ValueError, match=r"'gpu' or one of fp16, .*; got 'fp32'"):
        devices.missing("fp32")


def best_ms(dtype, size=256, repeats=10):
    a = torch.ones(size, size, dtype=dtype)
    return 1e3 * min(timeit.repeat(lambda: a @ a, number=1, repeat=repeats))


@real_clock
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="measured on x86 only")
def test_what_is_said_of_the_cpus_half_precision_shows_in_its_speed(one_thread):
    cpu, fp32_ms = devices.describe().cpu, best_ms(torch.float32)
    for support, dtype in ((cpu.bf16, torch.bfloat16), (cpu.fp16, torch.float16)):
        slowdown = best_ms(dtype) / fp32_ms
        bound_holds = slowdown > 3 if support == "fallback" else slowdown < 8
        assert bound_holds, f"{dtype} is {support} and takes {slowdown:.1f} times as long as fp32"


@pytest.mark.skipif(not hasattr(torch.cpu, "get_capabilities"), reason="not PyTorch is asked, but cpuinfo")
def test_cpuinfo_tells_older_versions_what_newer_ones_know():
    features = devices.cpuinfo_features(devices._text_of(devices._CPUINFO))
    known = torch.cpu.get_capabilities()
    for name in (*devices._BF16_INSTRUCTIONS, *devices._FP16_INSTRUCTIONS):
        assert features.get(name, False) == known.get(name, False), name


def test_a_format_is_native_where_the_cpu_has_instructions_for_it(monkeypatch, pull_out):
    monkeypatch.setattr(devices, "_cpu_features", lambda: {"amx_bf16": True, "avx512_bf16": False})
    cpu = devices.describe().cpu
    assert (cpu.half_precision_instructions, cpu.bf16) == (("amx_bf16",), "native")
    assert cpu.fp16 != "native"
    monkeypatch.setattr(devices, "_cpu_features", dict)
    assert devices.describe().cpu.bf16 != "native"


def test_cpuinfo_of_an_arm_server():
    text = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp sve svebf16 bf16\nCPU implementer\t: 0x41\n"
    assert {"fp16_arith", "bf16", "sve_bf16"} < devices.cpuinfo_features(text).keys()
    assert "avx512_bf16" not in devices.cpuinfo_features(text)


def test_free_main_memory_is_what_linux_calls_available_else_half_of_the_total(tmp_path, monkeypatch):
    total = devices.describe().cpu.memory_mib * 2**20
    assert 0 < devices.free_bytes(torch.device("cpu")) <= total
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  2000 kB\nMemFree:  500 kB\nMemAvailable:   1000 kB\n")
    monkeypatch.setattr(devices, "_MEMINFO", meminfo)
    assert devices.free_bytes("cpu") == 1000 * 1024
    meminfo.unlink()
    assert devices.free_bytes("cpu") == total // 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_a_real_gpu_is_described_as_pytorch_knows_it():
    machine = devices.describe()
    assert machine.device == "cuda"
    assert machine.name == torch.cuda.get_device_name()
    assert machine.capability == torch.cuda.get_device_capability()
    assert ("bf16" in machine.tensor_core_formats) == (machine.bf16 == "native")
