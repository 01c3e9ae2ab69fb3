from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from amp_lessons import bench, devices
from amp_lessons.cli import doctor
from amp_lessons.cli.doctor import (
    Facts,
    NvidiaSmi,
    diagnose,
    fitting_build,
    gather,
    parse_nvidia_smi,
    parse_version,
)
from amp_lessons.devices import Cpu, Gpu, Machine

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

FAST_CPU = Cpu("Test CPU", 8, 32768, "AVX512", ("avx512_bf16", "avx512_fp16"), "native", "native")
CPU_MACHINE = Machine(FAST_CPU, None, "none", "tf32", "2.13.0", "CPU only", ())

# As published for torch 2.13 on x86-64.
PUBLISHED = {
    (12, 6): frozenset({50, 60, 70, 75, 80, 86, 90}),
    (12, 9): frozenset({75, 80, 86, 90, 100, 120}),
    (13, 0): frozenset({75, 80, 86, 90, 100, 120}),
    (13, 2): frozenset({75, 80, 86, 90, 100, 120}),
}

HEALTHY_CPU = Facts(
    machine=CPU_MACHINE,
    python=(3, 11, 7),
    torch=(2, 13, 0),
    published_builds=PUBLISHED,
    obstacle="this build of PyTorch is for the CPU only",
)


def smi(name, capability, driver, cuda):
    return NvidiaSmi(driver, cuda, (name,), (capability,))


def with_build(cuda, obstacle, **facts):
    """Facts of a machine whose PyTorch was built for ``cuda`` and still uses no GPU."""
    machine = replace(CPU_MACHINE, torch_build=f"CUDA {devices.dotted(cuda)}")
    return replace(HEALTHY_CPU, machine=machine, torch_cuda=cuda, obstacle=obstacle, **facts)


def with_gpu(name, capability, bf16, warnings=(), **facts):
    gpu = Gpu(name, capability, 16384, 1, devices.tensor_core_formats(capability, name), bf16)
    machine = replace(CPU_MACHINE, gpu=gpu, warnings=warnings, torch_build="CUDA 13.0")
    return replace(HEALTHY_CPU, machine=machine, torch_cuda=(13, 0), obstacle=None, **facts)


HEALTHY_GPU = with_gpu("NVIDIA H100", (9, 0), "native", recorded_on=("AMD EPYC", "NVIDIA H100"))
TOO_OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 12020)"
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"

A100 = smi("NVIDIA A100", (8, 0), "580.65.06", (13, 0))
SLOW = replace(FAST_CPU, fp16="fallback")
UNKNOWN_ERROR = "CUDA unknown error - this may be due to an incorrectly set up environment"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
# Facts of a machine; `golden/doctor.txt` has what is said of each.
CASES = {
    "CPU-only build beside a GPU": replace(HEALTHY_CPU, nvidia_smi=A100),
    # The least new of the 12.x builds, which CUDA's minor version compatibility runs.
    "CPU-only build beside a GPU with a driver of the generation before": replace(
        HEALTHY_CPU, nvidia_smi=smi("NVIDIA A100", (8, 0), "550.54.14", (12, 4))
    ),
    "driver too old for the build": with_build(
        (13, 0), TOO_OLD_DRIVER, nvidia_smi=smi("NVIDIA A100", (8, 0), "535.183.01", (12, 2))
    ),
    "driver too old for every published build": with_build(
        (12, 6), TOO_OLD_DRIVER, nvidia_smi=smi("NVIDIA A100", (8, 0), "470.82.01", (11, 4))
    ),
    "build too old for the GPU": with_build(
        (12, 6), NO_KERNEL, nvidia_smi=smi("NVIDIA GeForce RTX 5090", (12, 0), "580.65.06", (13, 0))
    ),
    "build too new for the GPU": with_build(
        (13, 0), NO_KERNEL, nvidia_smi=smi("Tesla V100-SXM2-32GB", (7, 0), "580.65.06", (13, 0))
    ),
    "GPU too old for every published build": with_build(
        (12, 6), NO_KERNEL, nvidia_smi=smi("Tesla K80", (3, 7), "550.54.14", (12, 4))
    ),
    "GPU hidden by the environment": with_build(
        (13, 0), "No CUDA GPUs are available", nvidia_smi=A100, visible_devices=""
    ),
    "GPU that ought to work and does not": with_build(
        (13, 0), UNKNOWN_ERROR, nvidia_smi=A100, visible_devices="0"
    ),
    "driver that nvidia-smi cannot reach": with_build(
        (13, 0), "Found no NVIDIA driver on your system", nvidia_smi=NvidiaSmi(complaint=MISMATCH)
    ),
    "no GPU at all": HEALTHY_CPU,
    "nvidia-smi without a GPU": replace(HEALTHY_CPU, nvidia_smi=NvidiaSmi(driver="580.65.06", cuda=(13, 0))),
    "T4": with_gpu("Tesla T4", (7, 5), "emulated", ("Tesla T4 only emulates bf16.",)),
    "GPU without tensor cores": with_gpu("Tesla P100", (6, 0), "emulated", ("P100 has no tensor cores.",)),
    "old Python": with_gpu("NVIDIA A100", (8, 0), "native", python=(3, 9, 18)),
    "old PyTorch": with_gpu("NVIDIA A100", (8, 0), "native", torch=(2, 8, 0)),
    "no JupyterLab": with_gpu("NVIDIA A100", (8, 0), "native", jupyterlab=False),
    "several problems and a note": replace(HEALTHY_CPU, python=(3, 9), jupyterlab=False),
    "an Apple GPU beside the CPU": replace(HEALTHY_CPU, apple_gpu=True),
    "slow fp16 on a CPU": replace(HEALTHY_CPU, machine=replace(CPU_MACHINE, cpu=SLOW)),
    "slow fp16 on a CPU beside a GPU": replace(HEALTHY_GPU, machine=replace(HEALTHY_GPU.machine, cpu=SLOW)),
    "all there is": HEALTHY_GPU,
}


def test_each_case_is_named_with_its_cure(golden):
    told = []
    for name, facts in CASES.items():
        told.append(f"--- {name}")
        for symptom in diagnose(facts):
            told += [f"{symptom.severity}: {symptom.message}", f"cure: {symptom.cure}"]
    golden("doctor.txt", "\n".join(told).replace(sys.executable, "python"))


WHOLE = {"no GPU at all": 0, "T4": 0, "no JupyterLab": 1, "all there is": 0}  # exit statuses


def test_a_whole_examination(monkeypatch, session, golden):
    told = []
    for case, status in WHOLE.items():
        monkeypatch.setattr(doctor, "gather", lambda case=case: CASES[case])
        told.append(session("doctor"))
        assert told[-1].endswith(f"=> {status}")
    golden("doctor_whole.txt", "\n\n".join(told).replace(sys.executable, "python"))


@pytest.mark.parametrize(
    ("capability", "driver_cuda", "expected"),
    [
        ((8, 0), (13, 2), (13, 2)),
        ((8, 0), (13, 1), (13, 0)),
        ((8, 0), (12, 8), (12, 6)),
        ((10, 0), (12, 8), (12, 9)),  # of the builds this driver serves only 12.9 has kernels for a B200
        ((7, 0), (13, 2), (12, 6)),
        ((8, 9), (13, 0), (13, 0)),  # kernels for 8.6 run on 8.9
        ((12, 1), (13, 0), (13, 0)),
        ((8, 0), (11, 8), None),
        ((3, 5), (12, 4), None),
    ],
)
def test_the_build_offered_fits_driver_and_gpu(capability, driver_cuda, expected):
    assert fitting_build(PUBLISHED, smi("GPU", capability, "1", driver_cuda)) == expected


BANNER = """\
Mon Jan  6 10:00:00 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.14              Driver Version: 550.54.14      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
NEW_BANNER = """\
Sun Jun  7 08:16:57 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
"""
LISTING = "GPU 0: Tesla T4 (UUID: GPU-1f2e)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-77aa)\n"


def test_what_nvidia_smi_says_is_read_in_old_and_new_words_and_quoted_where_it_reaches_no_driver():
    names, both = ("Tesla T4", "NVIDIA H100 80GB HBM3"), ((7, 5), (9, 0))
    old = NvidiaSmi("550.54.14", (12, 4), names, both)
    assert parse_nvidia_smi(BANNER, LISTING, "7.5\n9.0\n") == old
    unknown = 'Field "compute_cap" is not a valid field.'
    assert parse_nvidia_smi(BANNER, LISTING, unknown) == replace(old, capabilities=())
    new = NvidiaSmi("610.43.02", (13, 3), names, both)
    assert parse_nvidia_smi(NEW_BANNER, LISTING, "7.5\n9.0\n") == new
    said = f"{MISMATCH}\nNVML library version: 550.54\n"
    assert parse_nvidia_smi(said, said, said) == NvidiaSmi(complaint=MISMATCH)


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.13.0+cpu", (2, 13, 0)), ("2.11.0.dev2026", (2, 11, 0)), ("12.6", (12, 6)), ("", ())],
)
def test_versions_are_read(text, version):
    assert parse_version(text) == version


def test_this_machine_gives_facts():
    facts = gather()
    assert facts.machine == devices.describe()
    assert facts.torch == parse_version(torch.__version__)
    assert set(facts.recorded_on) == {recording.setup.device for recording in bench.recordings()}
    assert all(kernel in range(30, 200) for kernels in facts.published_builds.values() for kernel in kernels)
    assert bool(facts.published_builds) == hasattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC")


def test_the_oldest_versions_are_those_of_the_package():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    (torch_needed,) = [Requirement(line) for line in project["dependencies"] if line.startswith("torch")]
    assert torch_needed.specifier == SpecifierSet(f">={devices.dotted(doctor.OLDEST_TORCH)}")
    assert SpecifierSet(project["requires-python"]) == SpecifierSet(
        f">={devices.dotted(doctor.OLDEST_PYTHON)}"
    )
