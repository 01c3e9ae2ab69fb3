"""What autocast does on CUDA, as the course finds it out without a GPU, and what the GPU really does.

Operation by operation, ``autocast.policy`` against the dtypes of what PyTorch's own test cases return; and
for models of the bench, the ledger written on the CPU under CUDA's rules against the one written on the GPU.
On a CPU both come from the rules: that tries the code, and tells nothing new.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from amp_lessons import autocast
from amp_lessons.autocast import Ledger, Policy
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.ledger import Row
from amp_lessons.bench import SOURCE_MODELS
from amp_lessons.precisions import HALVES
from tests.autocast.pytorch_lists import cases, lists
from tools.gpu.found import Agreement, Figure, Found, Place, needed

NAMESPACES = {"torch": torch, "nn": torch._C._nn, "linalg": torch._C._linalg}
LISTS = (
    "torch_fp16",
    "torch_fp32",
    "torch_need_autocast_promote",
    "nn_fp16",
    "nn_fp32",
    "linalg_fp16",
)
PRODUCT = "aten::mm"  # of linear layers; those of attention depend on the kernel that a device chooses
MOST_LINES = 20
_EXACT = "a dtype is the same or not"


def parts(place: Place) -> tuple[str, ...]:
    """Name the operations, and every ledger."""
    ledgers = [f"ledger of {model} {half}" for model in SOURCE_MODELS for half in HALVES]
    return ("operations", *ledgers)


def run(name: str, place: Place) -> Found:
    """Compare one."""
    if name == "operations":
        return _operations(place)
    model, _, half = name.removeprefix("ledger of ").rpartition(" ")
    return _ledgers(model, half, place)


def _operations(place: Place) -> Found:
    everything = lists.AutocastTestLists(place.device)
    agreements, lines = [], []
    for name in LISTS:
        known = [case for case in cases(everything, name) if _has_kernel(case[0], place)]
        wrong = [line for case in known if (line := _difference(name, *case, place))]
        about = f"{name}: operations that return what the policy says"
        agreements.append(Agreement(about, len(known), len(known) - len(wrong), _EXACT))
        lines += wrong
    return Found((), tuple(agreements), tuple(lines))


def _has_kernel(operation: str, place: Place) -> bool:
    return place.device == "cuda" or not operation.startswith("cudnn")


def _difference(name: str, operation: str, arguments: Any, extra: dict[str, Any], place: Place) -> str:
    """Say what an operation returned in place of what the table of policies claims; nothing if it did not."""
    function = getattr(NAMESPACES[name.partition("_")[0]], operation)
    claimed = _claimed(operation, arguments)
    with autocast.region("cuda", torch.float16, place.device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*arguments, **extra)
        except RuntimeError as error:
            return f"{operation} ({name}): claimed {claimed}, raised {error}"
    measured = ", ".join(sorted({str(part.dtype) for part in tensors_in(result)}))
    return "" if measured == claimed else f"{operation} ({name}): claimed {claimed}, returned {measured}"


def _claimed(operation: str, arguments: Any) -> str:
    """Say which dtype the table of policies leads one to expect under fp16 autocast."""
    base = f"aten::{operation}"
    table = autocast.policy("cuda")
    kinds = {kind for name, kind in table.items() if name.partition(".")[0] == base}
    if kinds == {Policy.LOWER_PRECISION}:
        return str(torch.float16)
    if kinds == {Policy.PROMOTE}:
        return str(_widest(arguments))
    in_fp32 = {Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE}
    if kinds and kinds <= in_fp32:
        return str(torch.float32)
    return f"no single policy: {', '.join(sorted(kind.name for kind in kinds))}"


def _widest(arguments: Any) -> torch.dtype:
    dtypes = [part.dtype for part in tensors_in(arguments) if part.is_floating_point()]
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).bits)


def _ledgers(model_name: str, half: str, place: Place) -> Found:
    needed("transformers")
    workload = SOURCE_MODELS[model_name]
    torch.manual_seed(0)
    model = workload.build("small")
    inputs = workload.batch(model, 2, "small")
    here = autocast.record(model, dtype=HALVES[half], backward=True, **inputs)
    there_inputs = tree_map_only(torch.Tensor, lambda tensor: tensor.to(place.device), inputs)
    there = autocast.record(model.to(place.device), dtype=HALVES[half], backward=True, **there_inputs)
    return compared(f"{model_name} {half}", here, there)


def compared(about: str, here: Ledger, there: Ledger) -> Found:
    """Compare two ledgers, the forward pass in order, the products of the backward pass in any."""
    forward = [_rows(ledger.forward) for ledger in (here, there)]
    backward = [
        sorted(_rows(row for row in ledger.backward if row.op == PRODUCT)) for ledger in (here, there)
    ]
    different = [*_differences(*forward), *_differences(*backward)]
    agreements = tuple(
        Agreement(f"{what} of {about}: operations and dtypes", _digest(one), _digest(other), _EXACT)
        for what, (one, other) in {"forward pass": forward, "backward products": backward}.items()
    )
    lines = tuple(f"{about}: {line}" for line in different)
    return Found((Figure("operations", len(here.rows)),), agreements, lines)


def _differences(here: Sequence[str], there: Sequence[str]) -> list[str]:
    """Name rows that only one of the two has, not all where there are many."""
    only_here, only_there = Counter(here) - Counter(there), Counter(there) - Counter(here)
    named = [
        *(f"on the CPU alone: {row}" for row in only_here),
        *(f"on the device: {row}" for row in only_there),
    ]
    return named[:MOST_LINES]


def _rows(rows: Iterable[Row]) -> list[str]:
    return [f"{row.module} {row.op} {row.input_dtypes} -> {row.output_dtype}" for row in rows]


def _digest(rows: Sequence[str]) -> str:
    """Say how many rows there are, and in one word which."""
    return f"{len(rows)} rows, {hashlib.sha256(chr(10).join(rows).encode()).hexdigest()[:12]}"
