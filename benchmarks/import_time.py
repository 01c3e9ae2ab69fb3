"""What importing each part of the package costs beyond ``import torch``."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from statistics import median

import amp_lessons
from amp_lessons import course, teaching
from benchmarks import promise

LIMIT_MS = 50
PROCESSES = 5

_MEASURE = """
import time
import torch
start = time.perf_counter()
import {module}
print(1e3 * (time.perf_counter() - start))
"""


def modules() -> list[str]:
    """Return the package, its rooms, and what ``amp-lessons`` and an audited training import."""
    folders = (amp_lessons, course, teaching)
    below = [f"{each.__name__}.{m.name}" for each in folders for m in pkgutil.iter_modules(each.__path__)]
    imported = (name for name in below if not name.endswith("__main__"))
    return ["amp_lessons", *imported, "amp_lessons.cli.cli", "amp_lessons.audit.watch"]


def import_ms(module: str) -> float:
    """Return the milliseconds that importing ``module`` takes in a fresh process which has imported torch."""
    code = _MEASURE.format(module=module)
    # compiled once, as on a learner's machine; some containers forbid Python to keep what it compiled
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the median of fresh processes for each module, ``amp_lessons.course.exercises`` among them."""
    print(f"import beyond torch, median of {PROCESSES} fresh processes")
    for module in modules():
        cost_ms = median(import_ms(module) for _ in range(PROCESSES))
        print(f"  {module:<28}{promise(LIMIT_MS, cost_ms, 'ms')}")
