"""Run small trainings under a watch, as somebody's own script, and say what was found on which line."""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
import warnings

from amp_lessons import audit

HEAD = """
import copy, io, math, sys
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
half, bf16 = (lambda: torch.autocast("cpu", torch.float16)), (lambda: torch.autocast("cpu", torch.bfloat16))


def batch(factor=1.0):
    return torch.randn(6, 8) * factor, torch.randint(0, 4, (6,))


def fp16_step(inputs, targets):
    optimizer.zero_grad()
    with half():
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

SCALER = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
"""


def run(source: str, name: str, every: int = 10) -> audit.Report:
    """Run a script; an exception or an exit ends it, as it may."""
    scaler = SCALER if "scaler" in source or "fp16_step" in source else ""
    text = HEAD + scaler + source
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    before, main = sys.modules["__main__"], types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    try:
        with warnings.catch_warnings(), contextlib.suppress(Exception, SystemExit):
            warnings.simplefilter("ignore")
            with audit.watch(every=every) as seen:
                exec(compile(text, name, "exec"), vars(main))
    finally:
        sys.modules["__main__"] = before
    return seen.report


def mistakes(report: audit.Report) -> dict[str, list[str]]:
    """Return the codes of mistakes, each with the lines that were named."""
    found: dict[str, list[str]] = {}
    for each in report.findings:
        if not each.ok:
            found.setdefault(each.code, []).append(each.place.source if each.place else "")
    return found


def marked(source: str) -> list[str]:
    """Return the lines that end in ``# mend``."""
    return [line.strip() for line in source.splitlines() if line.endswith("# mend")]


def first_lines(report: audit.Report) -> str:
    """Return what stands above the first section."""
    return str(report).partition("\n\n")[0].replace("\n", " ")
