"""Abilities of this machine in mixed precision, and what it lacks.

``describe()`` gathers the facts a lesson needs before it measures or claims anything. PyTorch is asked
wherever it can be. The two things it does not know stand below with their source: which number formats have
tensor cores, and which Turing cards were built without any.
"""

from __future__ import annotations

import os
import platform
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from amp_lessons._base.arguments import require

Support = Literal["native", "emulated", "fallback"]
Capability = tuple[int, int]

# The first compute capability whose tensor cores multiply each format; later ones keep it. Sources: the table
# of tensor core input types in https://docs.nvidia.com/cuda/cuda-programming-guide (compute capabilities) and
# https://nvidia.github.io/TransformerEngine/support_matrix.html
_TENSOR_CORES_SINCE: dict[str, Capability] = {
    "fp16": (7, 0),
    "bf16": (8, 0),
    "tf32": (8, 0),
    "fp8_e4m3": (8, 9),
    "fp8_e5m2": (8, 9),
    "fp4_e2m1": (10, 0),
}

# TU116 and TU117 report Turing's capability 7.5 but have no tensor cores.
_TURING_WITHOUT_TENSOR_CORES = re.compile(r"GTX 16\d\d|\bMX450\b|\bT(400|500|550|600|1000|1200)\b")

SLOW_BF16 = "This CPU has no instructions for bf16: its bf16 matrix products take longer than those in fp32."
SLOW_FP16 = (
    "This CPU has no fast fp16 kernel: fp16 matrix products take several to a hundred times as long as fp32."
)

_CPUINFO, _MEMINFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")  # where Linux tells of itself

_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
_FP16_INSTRUCTIONS = ("avx512_fp16", "amx_fp16", "fp16_arith")


@dataclass(frozen=True)
class Cpu:
    """The processor, as far as half precision is concerned.

    ``bf16`` and ``fp16`` say how a matrix product in that format runs: ``native`` (the processor has
    instructions for it), ``emulated`` (oneDNN converts to fp32 inside a fast kernel) or ``fallback``
    (PyTorch's generic loop: several to a hundred times slower than fp32, as the operands are laid out).
    """

    name: str
    threads: int
    memory_mib: int | None
    vector_instructions: str
    half_precision_instructions: tuple[str, ...]
    bf16: Support
    fp16: Support

    @property
    def label(self) -> str:
        """The name and what decides about bf16, in which processors of one name differ."""
        bf16 = {"native": " with bf16", "emulated": ", bf16 emulated", "fallback": ", no bf16"}[self.bf16]
        return f"{self.name} ({self.vector_instructions}{bf16})"


@dataclass(frozen=True)
class Gpu:
    """The CUDA GPU in use. ``tensor_core_formats`` are spelled as in ``formats.FORMATS``.

    ``bf16`` is ``emulated`` where the GPU has no bf16 arithmetic and PyTorch converts to fp32 and back.
    """

    name: str
    capability: Capability
    memory_mib: int
    count: int
    tensor_core_formats: tuple[str, ...]
    bf16: Support


@dataclass(frozen=True)
class Machine:
    """The machine a lesson runs on; ``gpu`` is None where no CUDA GPU is usable.

    ``matmul_fp32_precision`` and ``conv_fp32_precision`` are PyTorch's settings at the time of asking:
    ``"tf32"``, ``"ieee"``, or ``"none"``, which means that nobody chose and fp32 stays fp32. They matter only
    on a GPU whose tensor cores know TF32.
    """

    cpu: Cpu
    gpu: Gpu | None
    matmul_fp32_precision: str
    conv_fp32_precision: str
    torch_version: str
    torch_build: str
    warnings: tuple[str, ...]

    @property
    def device(self) -> str:
        """The device type that lessons run on, as ``torch.autocast`` and ``Tensor.to`` take it."""
        return "cuda" if self.gpu else "cpu"

    @property
    def name(self) -> str:
        """The product name of that device; a CPU's with its instructions."""
        return self.gpu.name if self.gpu else self.cpu.label

    @property
    def capability(self) -> Capability | None:
        """The GPU's compute capability, or None on the CPU."""
        return self.gpu.capability if self.gpu else None

    @property
    def memory_mib(self) -> int | None:
        """The memory of that device in MiB; None where the operating system does not tell."""
        return self.gpu.memory_mib if self.gpu else self.cpu.memory_mib

    @property
    def tensor_core_formats(self) -> tuple[str, ...]:
        """The formats whose matrix products run on tensor cores."""
        return self.gpu.tensor_core_formats if self.gpu else ()

    @property
    def bf16(self) -> Support:
        """That device's way of computing in bf16."""
        return self.gpu.bf16 if self.gpu else self.cpu.bf16


def default_device() -> torch.device:
    """Return the device that lessons run on: the CUDA GPU if a kernel really runs there, else the CPU.

    Apple's GPU (``mps``) is not chosen: the course compares the CPU's autocast rules with CUDA's, and none of
    it was ever tested on a Mac's GPU. A Mac's CPU runs every lesson.
    """
    return torch.device("cuda" if cuda_obstacle() is None else "cpu")


def cuda_obstacle() -> str | None:
    """Return why this process cannot compute on a CUDA GPU, in PyTorch's words, or None where it can."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this build of PyTorch is for the CPU only"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what PyTorch warns about here, it then raises
            torch.ones(1, device="cuda").add(1).item()
    except (RuntimeError, AssertionError) as error:
        return re.split(r"\.\s|\n", str(error).strip())[0]
    return None


def describe() -> Machine:
    """Describe this machine as it is now; settings such as TF32 are read at every call.

    Only PyTorch's newer precision settings are read. They follow the older ones, while reading the older
    ``allow_tf32`` or ``get_float32_matmul_precision()`` raises once a newer one has been set.
    """
    cpu, obstacle = _describe_cpu(), cuda_obstacle()
    gpu = _describe_gpu() if obstacle is None else None
    return Machine(
        cpu=cpu,
        gpu=gpu,
        matmul_fp32_precision=_NEWER_SWITCHES["cuda matmul"].read(),
        conv_fp32_precision=_NEWER_SWITCHES["cudnn conv"].read(),
        torch_version=torch.__version__,
        torch_build=torch_build(),
        warnings=_gpu_warnings(gpu) if gpu else _cpu_warnings(cpu, obstacle),
    )


@dataclass(frozen=True)
class Switch:
    """One of PyTorch's settings for fp32 on tensor cores: how to read it, and how to set it."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


@contextmanager
def fp32_products(*, tf32: bool) -> Iterator[None]:
    """Let fp32 matrix products and convolutions on a GPU round their operands to TF32, or forbid it.

    PyTorch's own default is mixed: convolutions may, matrix products may not. The settings are put back at
    the end. They are made through PyTorch's older switches, because once only a newer one is set, reading an
    older one raises, and torch.compile reads both.
    """
    require(tf32, bool, "tf32", "True or False")
    before = [(switch, switch.read()) for switch in FP32_SWITCHES]
    MATMUL_SWITCH.write("high" if tf32 else "highest")
    _CUDNN_SWITCH.write(tf32)
    try:
        yield
    finally:
        for switch, value in before:
            switch.write(value)


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Switch autocast off on a type of device, also on "meta", which PyTorch's autocast does not know."""
    known = torch.amp.is_autocast_available(device_type)
    return torch.autocast(device_type, enabled=False) if known else nullcontext()


def older_setting(read: Callable[[], Any]) -> Any:
    """Read one of PyTorch's older TF32 switches; None where only a newer one was set and reading raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch 2.9 warns even those who only ask
            return read()
    except RuntimeError:
        return None


def _older_switch(read: Callable[[], Any], write: Callable[[Any], object]) -> Switch:
    """Make an older switch: it reads None where only newer ones tell, and None is not written back."""
    return Switch(lambda: older_setting(read), lambda value: None if value is None else write(value))


def _newer_switch(holder: Any) -> Switch:
    return Switch(lambda: holder.fp32_precision, lambda value: setattr(holder, "fp32_precision", value))


_backends: Any = torch.backends
MATMUL_SWITCH = _older_switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)
_CUDNN_SWITCH = _older_switch(
    lambda: _backends.cudnn.allow_tf32, lambda allowed: setattr(_backends.cudnn, "allow_tf32", allowed)
)
_NEWER_SWITCHES = {
    "cuda matmul": _newer_switch(_backends.cuda.matmul),
    "cudnn conv": _newer_switch(_backends.cudnn.conv),
    "cudnn rnn": _newer_switch(_backends.cudnn.rnn),
    "cpu matmul": _newer_switch(_backends.mkldnn.matmul),
}
# The older ones first: to set one of them sets the newer ones that it stands for.
FP32_SWITCHES = (MATMUL_SWITCH, _CUDNN_SWITCH, *_NEWER_SWITCHES.values())


def tensor_core_formats(capability: Capability, name: str = "") -> tuple[str, ...]:
    """Return the formats that an NVIDIA GPU's tensor cores multiply, by compute capability and product name.

    INT8 and FP64 are left out, because no lesson trains in them. An AMD GPU has none.
    """
    if torch.version.hip or _TURING_WITHOUT_TENSOR_CORES.search(name):
        return ()
    return tuple(fmt for fmt, since in _TENSOR_CORES_SINCE.items() if capability >= since)


def missing(need: str, machine: Machine | None = None) -> str | None:
    """Say in one sentence which hardware ``need`` asks for and this machine lacks; None where it is there.

    ``need`` is ``"gpu"`` or a format for which there are tensor cores: ``"fp16"``, ``"bf16"``, ``"tf32"``,
    ``"fp8_e4m3"``, ``"fp8_e5m2"`` or ``"fp4_e2m1"``.
    """
    if need != "gpu" and need not in _TENSOR_CORES_SINCE:
        raise ValueError(f"need must be 'gpu' or one of {', '.join(_TENSOR_CORES_SINCE)}; got {need!r}")
    here = machine or describe()
    cores = "" if need == "gpu" else f"{need.split('_')[0].upper()} tensor cores"
    if here.gpu is None:
        return f"This needs an NVIDIA GPU{cores and ' with ' + cores}; here is only a CPU ({here.cpu.name})."
    if need == "gpu" or need in here.tensor_core_formats:
        return None
    since, own = dotted(_TENSOR_CORES_SINCE[need]), dotted(here.gpu.capability)
    return f"This needs {cores} (compute capability {since} or later); {here.name} ({own}) has none."


def cpu_name() -> str:
    """Return the processor's product name, without asking for a GPU."""
    model = re.search(r"^model name\s*:\s*(.+)$", _text_of(_CPUINFO), re.MULTILINE)
    known = _cpu_features().get("cpu_name") or (model and model[1])
    return known or platform.processor() or platform.machine()


def free_bytes(device: str | torch.device) -> int:
    """Return how much memory ``device`` has left; of main memory half, where only the total is known.

    Raises ``ValueError`` where the operating system tells neither.
    """
    place = torch.device(device)
    if place.type == "cuda":
        return torch.cuda.mem_get_info(place)[0]
    available = re.search(r"^MemAvailable:\s+(\d+) kB", _text_of(_MEMINFO), re.MULTILINE)
    if available:
        return int(available[1]) * 1024
    total_mib = _main_memory_mib()
    if total_mib is None:
        raise ValueError("this operating system does not say how much memory it has")
    return total_mib * 2**20 // 2


def torch_build() -> str:
    """Name what this PyTorch was built for: ``"CUDA 13.0"``, ``"ROCm 7.0"`` or ``"CPU only"``."""
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return f"ROCm {torch.version.hip}" if torch.version.hip else "CPU only"


def apple_gpu() -> bool:
    """Say whether PyTorch could use Apple's GPU here; no lesson does."""
    return torch.backends.mps.is_available()


def dotted(version: tuple[int, ...]) -> str:
    """Write a version or capability as people do: ``(8, 9)`` is ``"8.9"``."""
    return ".".join(map(str, version))


def _describe_gpu() -> Gpu:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    # Asked without the argument, PyTorch counts emulation too and says True on a T4 or V100.
    native_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return Gpu(
        name=properties.name,
        capability=capability,
        memory_mib=properties.total_memory // 2**20,
        count=torch.cuda.device_count(),
        tensor_core_formats=tensor_core_formats(capability, properties.name),
        bf16="native" if native_bf16 else "emulated",
    )


def _gpu_warnings(gpu: Gpu) -> tuple[str, ...]:
    if torch.version.hip:
        return (f"{gpu.name} is an AMD GPU: the lessons speak of NVIDIA's tensor cores and TF32.",)
    if not gpu.tensor_core_formats:
        return (f"{gpu.name} has no tensor cores: half precision saves memory here, and hardly any time.",)
    if gpu.bf16 == "emulated":
        return (f"{gpu.name} only emulates bf16; its tensor cores compute fp16, and it has no TF32.",)
    return ()


def _cpu_warnings(cpu: Cpu, obstacle: str | None) -> tuple[str, ...]:
    found = [f"No GPU in use ({obstacle}): autocast('cuda') and GradScaler('cuda') switch themselves off."]
    if cpu.bf16 == "fallback":
        found.append(SLOW_BF16)
    if cpu.fp16 == "fallback":
        found.append(SLOW_FP16)
    if apple_gpu():
        found.append("Apple's GPU (mps) is there, but the lessons run on the CPU.")
    return tuple(found)


def _describe_cpu() -> Cpu:
    features = _cpu_features()
    return Cpu(
        name=cpu_name(),
        threads=torch.get_num_threads(),
        memory_mib=_main_memory_mib(),
        vector_instructions=torch.backends.cpu.get_cpu_capability(),
        half_precision_instructions=tuple(
            name for name in (*_BF16_INSTRUCTIONS, *_FP16_INSTRUCTIONS) if features.get(name)
        ),
        bf16=_cpu_support(features, _BF16_INSTRUCTIONS, "_is_mkldnn_bf16_supported"),
        fp16=_cpu_support(features, _FP16_INSTRUCTIONS, "_is_mkldnn_fp16_supported"),
    )


def _cpu_support(features: Mapping[str, Any], instructions: tuple[str, ...], question: str) -> Support:
    if any(features.get(name) for name in instructions):
        return "native"
    onednn = torch.ops.mkldnn
    # A build without oneDNN does not have the question at all.
    return "emulated" if hasattr(onednn, question) and getattr(onednn, question)() else "fallback"


def _cpu_features() -> Mapping[str, Any]:
    """Ask PyTorch for the processor's instruction sets; older versions leave it to /proc/cpuinfo."""
    if hasattr(torch.cpu, "get_capabilities"):
        return torch.cpu.get_capabilities()
    return cpuinfo_features(_text_of(_CPUINFO))


def cpuinfo_features(cpuinfo: str) -> dict[str, bool]:
    """Read instruction sets from the text of Linux's /proc/cpuinfo, under the names PyTorch gives them."""
    lists = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    words = {word for flags in lists for word in flags.split()}
    renamed = {"asimdhp": "fp16_arith", "svebf16": "sve_bf16"}
    return {renamed.get(word, word): True for word in words}


def _text_of(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _main_memory_mib() -> int | None:
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
