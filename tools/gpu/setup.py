"""On what and with what this process would measure: ``python -m tools.gpu.setup DEVICE`` prints it as JSON.

A process of its own is asked, so that the one which conducts holds no GPU.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from amp_lessons.keeping.from_json import made
from tools.gpu.process import ROOT, environment
from tools.gpu.recording import Setup


class NoDeviceError(Exception):
    """There is nothing to measure on; the message says why."""


def this_setup(device: str) -> Setup:
    """Describe the machine and its versions. Raises NoDeviceError, with the words of who was asked."""
    asked = [sys.executable, "-m", "tools.gpu.setup", device]
    done = subprocess.run(asked, cwd=ROOT, env=environment(), capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        raise NoDeviceError(said[-1] if said else f"exit status {done.returncode}")
    return made(Setup, json.loads(done.stdout.splitlines()[-1]))


def _described(device: str) -> Setup:
    import torch

    from amp_lessons import devices

    machine = devices.describe()
    gpu = machine.gpu if device == "cuda" else None
    if device == "cuda" and gpu is None:
        raise SystemExit(devices.cuda_obstacle())
    return Setup(
        device=gpu.name if gpu else machine.cpu.name,
        device_type=device,
        capability=devices.dotted(gpu.capability) if gpu else "",
        driver=driver() if gpu else "",
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        cudnn=str(torch.backends.cudnn.version() or "") if gpu else "",
        python=platform.python_version(),
        transformers=_version_of("transformers"),
        course=course_version(),
        cpu=machine.cpu.name,
        threads=machine.cpu.threads,
    )


def driver() -> str:
    """Ask nvidia-smi for the driver's version; empty where it does not tell."""
    if shutil.which("nvidia-smi") is None:
        return ""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        words = subprocess.run(asked, capture_output=True, text=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return ""
    return words[0] if words and re.fullmatch(r"[\d.]+", words[0]) else ""


def course_version(root: Path = ROOT) -> str:
    """Read the version of the course in this checkout: what is installed may be another."""
    found = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else ""


def lacking(root: Path = ROOT) -> list[str]:
    """Name the packages that the course depends on, and the bench's, that this Python does not have.

    Whatever needs one of them says so itself; but who has carried packages here may like to know all at once.
    """
    text = (root / "pyproject.toml").read_text("utf-8")
    lists = re.findall(r"^(?:dependencies|models) = \[(.*?)\][^\[\]]*$", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"""^\s*"([\w.-]+)|^"([\w.-]+)""", "\n".join(lists), re.MULTILINE)
    return [name for name in map("".join, names) if not _version_of(name)]


def commit(root: Path = ROOT) -> str:
    """Name the commit that is checked out, and say whether files differ from it; empty without git."""
    described = ["git", "describe", "--always", "--dirty=+changes", "--exclude=*", "--abbrev=12"]
    try:
        done = subprocess.run(described, cwd=root, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    print(json.dumps(asdict(_described(sys.argv[1]))))
