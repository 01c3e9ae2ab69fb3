"""Run small trainings under a watch, as somebody's own script, and say what was found on which line."""

from __future__ import annotations

import contextlib
import linecache
import sys
import types
import warnings
from typing import Any

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


def outputs_in(autocast):
    inputs, targets = batch()
    optimizer.zero_grad()
    with autocast():
        return model(inputs), targets


def loss_in(autocast, factor=1.0):
    inputs, targets = batch(factor)
    optimizer.zero_grad()
    with autocast():
        return F.cross_entropy(model(inputs), targets)


def decay():
    return 1e-3 * sum(weight.square().sum() for weight in model.parameters())


hidden = torch.zeros(6, 6)  # two keys from all queries, and all from one
hidden[:, 4:] = hidden[0] = 1


def attention_loss(weights_of):
    inputs, targets = batch()
    optimizer.zero_grad()
    with half():
        outputs = weights_of(model[0](inputs) @ model[0](inputs).T) @ model(inputs)
    return F.cross_entropy(outputs.float(), targets)


def step_on(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def apply(loss):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def fp16_step(factor=1.0):
    apply(loss_in(half, factor))


class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cpu")

    def __call__(self, loss, optimizer):
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()
"""

SCALER = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
"""


def run(source: str, name: str, every: int = 10, head: str = HEAD, **names: Any) -> audit.Report:
    """Run a script that knows ``names`` too; an exception or an exit ends it, as it may."""
    scaler = SCALER if head and any(each in source for each in ("scaler", "apply(", "fp16_step")) else ""
    text = head + scaler + source
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    before, main = sys.modules["__main__"], types.ModuleType("__main__")
    main.__file__ = name
    sys.modules["__main__"] = main
    try:
        with warnings.catch_warnings(), contextlib.suppress(Exception, SystemExit):
            warnings.simplefilter("ignore")
            with audit.watch(every=every) as seen:
                exec(compile(text, name, "exec"), vars(main) | names)
    finally:
        sys.modules["__main__"] = before
    assert not [said for said in seen.report.not_seen if "trouble" in said]
    return seen.report


def by_title(scripts: str) -> dict[str, str]:
    """Take scripts apart, each of which begins with its title."""
    return dict(each.split("\n", 1) for each in scripts.split("### ")[1:])


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
