"""``amp-lessons doctor``: what this machine can do, what the lessons show on it, what mends what is missing.

``gather`` asks the machine, ``diagnose`` judges what it answered, ``write_report`` puts both into words.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from amp_lessons import devices
from amp_lessons._base.text.words import memory
from amp_lessons.cli import lab
from amp_lessons.cli.lab import surroundings
from amp_lessons.cli.lab.surroundings import Surroundings
from amp_lessons.course import lessons
from amp_lessons.course.bench.folders import recordings
from amp_lessons.devices import SLOW_FP16, Machine, dotted

Version = tuple[int, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options: the doctor looks at everything."""


def run(args: argparse.Namespace) -> int:
    """Print the examination; 1 if something that the course needs is broken, else 0."""
    facts = gather()
    symptoms = diagnose(facts)
    print(write_report(facts, symptoms))
    return int(any(symptom.severity == "problem" for symptom in symptoms))


@dataclass(frozen=True)
class NvidiaSmi:
    """The answer of the driver's own tool: which GPUs there are, and the newest CUDA this driver serves.

    ``complaint`` is what it said instead where it could not talk to the driver.
    """

    driver: str = ""
    cuda: Version = ()
    names: tuple[str, ...] = ()
    capabilities: tuple[Version, ...] = ()
    complaint: str = ""


@dataclass(frozen=True)
class Facts:
    """All that a diagnosis depends on.

    ``torch_cuda`` is the CUDA version PyTorch was built for, None for other builds. ``published_builds`` maps
    the CUDA versions for which this PyTorch release is published to the compute capabilities that each has
    kernels for, written as 75 for 7.5. ``obstacle`` is PyTorch's reason for not using a GPU, and
    ``visible_devices`` is CUDA_VISIBLE_DEVICES. ``nvidia_smi`` is None where that tool is not installed.
    ``recorded_on`` names the devices of all benchmark results there are, the learner's own first.
    ``folder`` is where the lessons are or will be, and ``folder_obstacle`` why they cannot be there.
    """

    machine: Machine
    python: Version
    torch: Version
    torch_cuda: Version | None = None
    published_builds: Mapping[Version, frozenset[int]] = field(default_factory=dict)
    nvidia_smi: NvidiaSmi | None = None
    obstacle: str | None = None
    visible_devices: str | None = None
    jupyterlab: bool = True
    apple_gpu: bool = False
    recorded_on: tuple[str, ...] = ()
    surroundings: Surroundings = field(default_factory=Surroundings)
    folder: Path = Path()
    folder_obstacle: str = ""


def gather() -> Facts:
    """Gather the facts of this machine; nvidia-smi runs, if it is there."""
    folder = lessons.folder_for(Path.cwd())
    return Facts(
        machine=devices.describe(),
        python=sys.version_info[:3],
        torch=parse_version(torch.__version__),
        torch_cuda=parse_version(torch.version.cuda) if torch.version.cuda else None,
        published_builds=_published_builds(),
        nvidia_smi=_ask_nvidia_smi(),
        obstacle=devices.cuda_obstacle(),
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        jupyterlab=lab.jupyterlab_installed(),
        apple_gpu=devices.apple_gpu(),
        recorded_on=tuple(dict.fromkeys(recording.setup.device for recording in recordings())),
        surroundings=surroundings.look(),
        folder=folder,
        folder_obstacle=lessons.obstacle(folder),
    )


def parse_version(text: str) -> Version:
    """Read the leading numbers of a version: ``"2.13.0+cpu"`` is ``(2, 13, 0)``."""
    numbers = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(number) for number in numbers[0].split(".")) if numbers else ()


def parse_nvidia_smi(banner: str, listing: str, capabilities: str) -> NvidiaSmi:
    """Read the output of ``nvidia-smi``, ``nvidia-smi -L`` and ``nvidia-smi --query-gpu=compute_cap``.

    Drivers from 610 on write "KMD Version" and "CUDA UMD Version" where older ones write "Driver Version" and
    "CUDA Version". Drivers that do not know ``compute_cap`` leave the capabilities empty.
    """
    driver = re.search(r"(?:Driver|KMD) Version:\s*([\d.]+)", banner)
    cuda = re.search(r"CUDA (?:UMD )?Version:\s*([\d.]+)", banner)
    lines = [line for line in banner.splitlines() if line.strip()]
    return NvidiaSmi(
        driver=driver[1] if driver else "",
        cuda=parse_version(cuda[1]) if cuda else (),
        names=tuple(re.findall(r"^GPU \d+: (.+?) \(UUID", listing, re.MULTILINE)),
        capabilities=tuple(map(parse_version, re.findall(r"^\s*(\d+\.\d+)\s*$", capabilities, re.MULTILINE))),
        complaint="" if driver else " ".join(lines[:1]),
    )


def _ask_nvidia_smi() -> NvidiaSmi | None:
    if shutil.which("nvidia-smi") is None:
        return None
    return parse_nvidia_smi(
        _output("nvidia-smi"),
        _output("nvidia-smi", "-L"),
        _output("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"),
    )


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


def _published_builds() -> dict[Version, frozenset[int]]:
    """Return the CUDA versions this PyTorch release is published for, and what each build has kernels for."""
    architecture = "aarch64" if platform.machine() == "aarch64" else "x86_64"
    published = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", {})
    return {
        parse_version(cuda): frozenset(
            kernels.get(architecture, ()) if isinstance(kernels, dict) else kernels
        )
        for cuda, kernels in published.items()
    }


OLDEST_PYTHON: Version = (3, 10)
OLDEST_TORCH: Version = (2, 9)

# The oldest driver that serves a CUDA generation:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
_OLDEST_DRIVER = {12: 525, 13: 580}


@dataclass(frozen=True)
class Symptom:
    """Something the learner should know; ``cure`` is what mends it, where anything does.

    A ``problem`` means that a part of the course does not work as it could on this machine.
    """

    severity: Literal["problem", "note"]
    message: str
    cure: str = ""


def diagnose(facts: Facts) -> list[Symptom]:
    """Return all symptoms, problems first."""
    asked = (_versions, _jupyter, _lessons, _gpu, _cpu, _apple, _surroundings)
    symptoms = [symptom for ask in asked for symptom in ask(facts)]
    return sorted(symptoms, key=lambda symptom: symptom.severity == "note")


def fitting_build(published: Mapping[Version, frozenset[int]], smi: NvidiaSmi) -> Version | None:
    """Return the newest published CUDA build that this driver serves and that has kernels for this GPU.

    A driver serves the builds of its own CUDA generation and of older ones. Where all that fit are newer than
    the driver, the least new is taken.
    """
    fitting = [
        cuda
        for cuda, kernels in published.items()
        if (not smi.cuda or cuda[0] <= smi.cuda[0])
        and (not smi.capabilities or _runs_on(smi.capabilities[0], kernels))
    ]
    no_newer = [cuda for cuda in fitting if not smi.cuda or cuda <= smi.cuda]
    return max(no_newer) if no_newer else min(fitting, default=None)


def _versions(facts: Facts) -> Iterator[Symptom]:
    if facts.python[:2] < OLDEST_PYTHON:
        yield Symptom(
            "problem",
            f"Python {dotted(facts.python)} is too old: the course needs {dotted(OLDEST_PYTHON)} or later.",
            "Install a newer Python and make the environment with it: make lab PYTHON=python3.12",
        )
    if facts.torch[:2] < OLDEST_TORCH:
        yield Symptom(
            "problem",
            f"PyTorch {dotted(facts.torch)} is too old: the course needs {dotted(OLDEST_TORCH)} or later.",
            f'{sys.executable} -m pip install --upgrade "torch>={dotted(OLDEST_TORCH)}"',
        )


def _jupyter(facts: Facts) -> Iterator[Symptom]:
    if not facts.jupyterlab:
        yield Symptom("problem", "JupyterLab is not installed for this Python.", lab.install_jupyterlab())


def _lessons(facts: Facts) -> Iterator[Symptom]:
    if facts.folder_obstacle:
        yield Symptom(
            "problem",
            f"Your copy of the lessons cannot be in {facts.folder}: {facts.folder_obstacle}.",
            "Name a folder that is yours: amp-lessons lab ~/my_lessons",
        )


def _gpu(facts: Facts) -> Iterator[Symptom]:
    smi = facts.nvidia_smi
    if facts.machine.gpu:
        emulated = facts.machine.bf16 == "emulated" and "fp16" in facts.machine.tensor_core_formats
        cure = "Train with torch.autocast('cuda', dtype=torch.float16) and a GradScaler." if emulated else ""
        yield from (Symptom("note", warning, cure) for warning in facts.machine.warnings)
    elif smi and smi.complaint:
        yield Symptom(
            "problem",
            f"nvidia-smi cannot talk to the driver: {smi.complaint}",
            "Restart the machine. If it says so still, install the NVIDIA driver again.",
        )
    elif smi and smi.names:
        yield _unused(facts, smi)
    else:
        yield Symptom("note", f"No NVIDIA GPU was found ({facts.obstacle}). The lessons run on the CPU.")


def _unused(facts: Facts, smi: NvidiaSmi) -> Symptom:
    """Explain why PyTorch does not use a GPU that nvidia-smi sees."""
    seen = f"nvidia-smi sees {smi.names[0]}, but PyTorch does not use it: "
    if facts.visible_devices is not None and facts.visible_devices.strip() in ("", "-1"):
        hidden = f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} hides it."
        return Symptom("note", seen + hidden, "unset CUDA_VISIBLE_DEVICES")
    if facts.torch_cuda is None:
        wrong_build = f"this PyTorch is built for: {facts.machine.torch_build}."
        return Symptom("problem", seen + wrong_build, _install_fitting_build(facts, smi))
    restart = "Restart the machine if its driver was updated since it started; else install PyTorch again: "
    unexplained = f"{facts.obstacle}.", restart + _install_fitting_build(facts, smi)
    reason, cure = _driver_too_old(facts, smi) or _no_kernels(facts, smi) or unexplained
    return Symptom("problem", seen + reason, cure)


def _driver_too_old(facts: Facts, smi: NvidiaSmi) -> tuple[str, str] | None:
    assert facts.torch_cuda
    generation = facts.torch_cuda[0]
    if not smi.cuda or smi.cuda[0] >= generation:
        return None
    reason = f"the driver ({smi.driver}, for CUDA {dotted(smi.cuda)}) is too old for {_build(facts)}."
    oldest = f" to {_OLDEST_DRIVER[generation]} or later" if generation in _OLDEST_DRIVER else ""
    fitting = _install_fitting_build(facts, smi)
    return reason, f"Update the driver{oldest}, or take a PyTorch that fits it: {fitting}"


def _no_kernels(facts: Facts, smi: NvidiaSmi) -> tuple[str, str] | None:
    assert facts.torch_cuda
    kernels = facts.published_builds.get(facts.torch_cuda)
    if not kernels or not smi.capabilities or _runs_on(smi.capabilities[0], kernels):
        return None
    age = "too old" if _tens(smi.capabilities[0]) > max(kernels) else "too new"
    reason = (
        f"{_build(facts)} is {age} for compute capability {dotted(smi.capabilities[0])}: it has no kernels."
    )
    return reason, _install_fitting_build(facts, smi)


def _build(facts: Facts) -> str:
    return f"PyTorch's build ({facts.machine.torch_build})"


def _install_fitting_build(facts: Facts, smi: NvidiaSmi) -> str:
    build = fitting_build(facts.published_builds, smi)
    if build is None:
        return "see https://pytorch.org/get-started/previous-versions"
    tag = "cu" + "".join(map(str, build))
    # With the tag in the version, because pip takes an installed 2.13.0+cpu for 2.13.0 and would do nothing.
    wheel = f"torch=={dotted(facts.torch)}+{tag}"
    return f"{sys.executable} -m pip install {wheel} --index-url https://download.pytorch.org/whl/{tag}"


def _runs_on(capability: Version, kernels: frozenset[int]) -> bool:
    """Kernels run on their own compute capability and on later ones of the same generation."""
    own = _tens(capability)
    return any(kernel // 10 == own // 10 and kernel <= own for kernel in kernels)


def _tens(capability: Version) -> int:
    return 10 * capability[0] + capability[1]


def _cpu(facts: Facts) -> Iterator[Symptom]:
    if not facts.machine.gpu and facts.machine.cpu.fp16 == "fallback":
        yield Symptom("note", SLOW_FP16, "Nothing to mend: networks that train in fp16 are kept small.")


def _apple(facts: Facts) -> Iterator[Symptom]:
    if facts.apple_gpu:
        yield Symptom(
            "note",
            "Apple's GPU is there. PyTorch has fp16 and bf16 autocast and a GradScaler for it, but no fp64, "
            "and none of this course was tested on it: the lessons run on the CPU.",
            'To try it: torch.autocast("mps", dtype=torch.float16) around a model on the device "mps".',
        )


def _surroundings(facts: Facts) -> Iterator[Symptom]:
    here = facts.surroundings
    if here.root:
        yield Symptom("note", surroundings.root_explained("localhost"))
    for sentence in surroundings.way_in(here, surroundings.PORT):
        yield Symptom("note", sentence)
    if not here.home_writable:
        yield Symptom("note", surroundings.NO_HOME)


_SUPPORT_IN_WORDS = {
    "native": "in hardware",
    "emulated": "emulated through fp32",
    "fallback": "in a generic loop, slow",
}


def write_report(facts: Facts, symptoms: Sequence[Symptom]) -> str:
    """Return the whole examination as text for a terminal."""
    return "\n\n".join(
        [
            _section("This machine", machine_rows(facts)),
            _section("What the lessons show on it", outlook(facts)),
            _symptoms_section("What is missing", [each for each in symptoms if each.severity == "problem"]),
            _symptoms_section("Good to know", [each for each in symptoms if each.severity == "note"]),
        ]
    )


def machine_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return what this machine is and can, as rows of (subject, statement)."""
    machine, cpu = facts.machine, facts.machine.cpu
    bf16 = f"bf16 {_SUPPORT_IN_WORDS[machine.bf16]}"
    extras = ", ".join(cpu.half_precision_instructions) or "no half precision instructions"
    return [
        ("lessons run on", _device(machine)),
        ("lessons", str(facts.folder)),
        ("memory", memory(machine.memory_mib * 2**20) if machine.memory_mib else "not told"),
        ("tensor cores", ", ".join(machine.tensor_core_formats) or "none"),
        ("half precision", bf16 if machine.gpu else f"{bf16}, fp16 {_SUPPORT_IN_WORDS[cpu.fp16]}"),
        ("TF32", _tf32(machine)),
        ("CPU", f"{cpu.threads} threads, {cpu.vector_instructions}, {extras}"),
        (
            "software",
            f"PyTorch {machine.torch_version} ({machine.torch_build}), Python {dotted(facts.python)}",
        ),
    ]


def outlook(facts: Facts) -> list[tuple[str, str]]:
    """Return what the lessons will show on this machine, under the three labels that they use."""
    measured = "number formats, gradients and loss scaling, autocast's dtypes, time and memory on this "
    rows = [
        ("measured here", measured + ("CPU" if facts.machine.gpu is None else "GPU")),
        ("computed", "CUDA's autocast rules and the memory of a training step; no GPU is needed"),
    ]
    if facts.recorded_on:
        rows.append(("recorded", f"training steps of well-known models on {', '.join(facts.recorded_on)}"))
    return rows


def _device(machine: Machine) -> str:
    if machine.gpu is None:
        return f"the CPU ({machine.cpu.name})"
    count = f"{machine.gpu.count} x " if machine.gpu.count > 1 else ""
    return f"{count}{machine.gpu.name}, compute capability {dotted(machine.gpu.capability)}"


def _tf32(machine: Machine) -> str:
    settings = {"matrix products": machine.matmul_fp32_precision, "convolutions": machine.conv_fp32_precision}
    if "tf32" not in machine.tensor_core_formats:
        return "this device has none, whatever PyTorch is set to"
    return ", ".join(f"{'on' if value == 'tf32' else 'off'} for {what}" for what, value in settings.items())


def _section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([title, *(f"  {subject:<18}{statement}" for subject, statement in rows)])


def _symptoms_section(title: str, symptoms: Iterable[Symptom]) -> str:
    lines = []
    for each in symptoms:
        lines += [f"  - {each.message}", *([f"    {each.cure}"] if each.cure else [])]
    return "\n".join([title, *(lines or ["  Nothing."])])
