"""From facts to symptoms: what stands between this machine and the course, and what mends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from amp_lessons.commands import lab
from amp_lessons.commands.doctor.facts import Facts, NvidiaSmi, Version
from amp_lessons.commands.lab import surroundings
from amp_lessons.devices import SLOW_FP16, Machine, dotted

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
        yield from (Symptom("note", warning, _advice(facts.machine)) for warning in facts.machine.warnings)
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


def _advice(machine: Machine) -> str:
    if machine.bf16 == "emulated" and "fp16" in machine.tensor_core_formats:
        return "Train with torch.autocast('cuda', dtype=torch.float16) and a GradScaler."
    return ""


def _unused(facts: Facts, smi: NvidiaSmi) -> Symptom:
    """Say why PyTorch does not use a GPU that nvidia-smi sees."""
    seen = f"nvidia-smi sees {smi.names[0]}, but PyTorch does not use it: "
    if facts.visible_devices is not None and facts.visible_devices.strip() in ("", "-1"):
        hidden = f"CUDA_VISIBLE_DEVICES={facts.visible_devices!r} hides it."
        return Symptom("note", seen + hidden, "unset CUDA_VISIBLE_DEVICES")
    if facts.torch_cuda is None:
        wrong_build = f"this PyTorch is built for: {facts.machine.torch_build}."
        return Symptom("problem", seen + wrong_build, _install_fitting_build(facts, smi))
    reason_and_cure = _driver_too_old(facts, smi) or _no_kernels(facts, smi) or _unexplained(facts, smi)
    return Symptom("problem", seen + reason_and_cure[0], reason_and_cure[1])


def _driver_too_old(facts: Facts, smi: NvidiaSmi) -> tuple[str, str] | None:
    assert facts.torch_cuda
    generation = facts.torch_cuda[0]
    if not smi.cuda or smi.cuda[0] >= generation:
        return None
    reason = f"the driver ({smi.driver}, for CUDA {dotted(smi.cuda)}) is too old for {_build(facts)}."
    update = (
        f"Update the driver to {_OLDEST_DRIVER[generation]} or later"
        if generation in _OLDEST_DRIVER
        else ("Update the driver")
    )
    return reason, f"{update}, or take a PyTorch that fits it: {_install_fitting_build(facts, smi)}"


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


def _unexplained(facts: Facts, smi: NvidiaSmi) -> tuple[str, str]:
    reinstall = f"else install PyTorch again: {_install_fitting_build(facts, smi)}"
    return (
        f"{facts.obstacle}.",
        f"Restart the machine if its driver was updated since it started; {reinstall}",
    )


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
