"""The facts a diagnosis depends on, and how to get them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from amp_lessons import devices, lessons
from amp_lessons.bench.folders import recordings
from amp_lessons.commands import lab
from amp_lessons.commands.lab import surroundings
from amp_lessons.commands.lab.surroundings import Surroundings
from amp_lessons.devices import Machine

Version = tuple[int, ...]


@dataclass(frozen=True)
class NvidiaSmi:
    """What the driver's own tool says: which GPUs there are, and the newest CUDA this driver serves.

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
    """Ask this machine."""
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
    """Ask PyTorch for which CUDA versions its release is published and what each build has kernels for."""
    architecture = "aarch64" if platform.machine() == "aarch64" else "x86_64"
    published = getattr(torch.cuda, "PYTORCH_RELEASES_CODE_CC", {})
    return {
        parse_version(cuda): frozenset(
            kernels.get(architecture, ()) if isinstance(kernels, dict) else kernels
        )
        for cuda, kernels in published.items()
    }
