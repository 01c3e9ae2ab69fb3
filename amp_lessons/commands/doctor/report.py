"""The examination in words: this machine, what the lessons show on it, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amp_lessons.commands.doctor.diagnosis import Symptom
from amp_lessons.commands.doctor.facts import Facts
from amp_lessons.devices import Machine, dotted
from amp_lessons.text.words import memory

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
            _symptoms_section("What is missing", symptoms, "problem", "Nothing."),
            _symptoms_section("Good to know", symptoms, "note", "Nothing."),
        ]
    )


def machine_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return what this machine is and can, as rows of (subject, statement)."""
    machine = facts.machine
    return [
        ("lessons run on", _device(machine)),
        ("lessons", str(facts.folder)),
        ("memory", memory(machine.memory_mib * 2**20) if machine.memory_mib else "not told"),
        ("tensor cores", ", ".join(machine.tensor_core_formats) or "none"),
        ("half precision", _half_precision(machine)),
        ("TF32", _tf32(machine)),
        ("CPU", _cpu(machine)),
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


def _half_precision(machine: Machine) -> str:
    bf16 = f"bf16 {_SUPPORT_IN_WORDS[machine.bf16]}"
    return bf16 if machine.gpu else f"{bf16}, fp16 {_SUPPORT_IN_WORDS[machine.cpu.fp16]}"


def _device(machine: Machine) -> str:
    if machine.gpu is None:
        return f"the CPU ({machine.cpu.name})"
    count = f"{machine.gpu.count} x " if machine.gpu.count > 1 else ""
    return f"{count}{machine.gpu.name}, compute capability {dotted(machine.gpu.capability)}"


def _cpu(machine: Machine) -> str:
    cpu = machine.cpu
    extras = ", ".join(cpu.half_precision_instructions) or "no half precision instructions"
    return f"{cpu.threads} threads, {cpu.vector_instructions}, {extras}"


def _tf32(machine: Machine) -> str:
    settings = {"matrix products": machine.matmul_fp32_precision, "convolutions": machine.conv_fp32_precision}
    if "tf32" not in machine.tensor_core_formats:
        return "this device has none, whatever PyTorch is set to"
    return ", ".join(f"{'on' if value == 'tf32' else 'off'} for {what}" for what, value in settings.items())


def _section(title: str, rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join([title, *(f"  {subject:<18}{statement}" for subject, statement in rows)])


def _symptoms_section(title: str, symptoms: Iterable[Symptom], severity: str, none: str) -> str:
    lines = [line for symptom in symptoms if symptom.severity == severity for line in _lines(symptom)]
    return "\n".join([title, *(lines or [f"  {none}"])])


def _lines(symptom: Symptom) -> list[str]:
    return [f"  - {symptom.message}", *([f"    {symptom.cure}"] if symptom.cure else [])]
