"""Read PyTorch's own lists of autocast operations from the C++ header that ships in every wheel."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_LISTS = {
    "AT_FORALL_LOWER_PRECISION_FP": "lower_precision_fp",
    "AT_FORALL_FP32": "fp32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "fp32_set_opt_dtype",
    "AT_FORALL_PROMOTE": "promote",
}
_APPENDING_LIST = "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE"


def header_path() -> Path:
    """Return where the installed PyTorch keeps ``ATen/autocast_mode.h``, if it was shipped."""
    return Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def header_lists() -> dict[str, str]:
    """Name the C++ cast policy of every operation in the header's lists.

    Returns a dict such as ``{"aten::softmax.int": "fp32_set_opt_dtype"}``, empty if the header was not
    shipped. The header serves every device that reuses PyTorch's lists (CUDA, XPU); the CPU and MPS have
    lists of their own in C++ files that are not shipped.
    """
    path = header_path()
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    listed = {
        op: policy for macro, policy in _LISTS.items() for op in _plain_entries(_macro_body(text, macro))
    }
    # one list gives its entries as strings: "norm.Scalar"
    quoted = re.findall(r'"([\w.]+)"', _macro_body(text, _APPENDING_LIST))
    return listed | {f"aten::{name}": "fp32_append_dtype" for name in quoted}


def _macro_body(text: str, macro: str) -> str:
    """Return the lines of ``#define macro(_) ...`` up to the first one that does not end in a backslash."""
    found = re.search(rf"^#define {macro}\(_\)((?:.*\\\n)*.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _plain_entries(body: str) -> list[str]:
    """Return ``aten::softmax.int`` for each ``_(softmax, int)``."""
    entries = re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", body)
    return [f"aten::{name}.{overload}" if overload else f"aten::{name}" for name, overload in entries]
