"""What importing each part of the package costs beyond ``import torch``."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from statistics import median

import amp_lessons

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
    """Return the package and every module and subpackage right below it that one imports."""
    below = (f"amp_lessons.{module.name}" for module in pkgutil.iter_modules(amp_lessons.__path__))
    return ["amp_lessons", *(name for name in below if not name.endswith("__main__"))]


def import_ms(module: str) -> float:
    """Return the milliseconds that importing ``module`` takes in a fresh process which has imported torch."""
    code = _MEASURE.format(module=module)
    # compiled once, as on a learner's machine; some containers forbid Python to keep what it compiled
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the median of fresh processes for each module; AssertionError for those above the limit."""
    print(f"import beyond torch, median of {PROCESSES} fresh processes; limit: {LIMIT_MS} ms")
    costs_ms = {}
    for module in modules():
        costs_ms[module] = median(import_ms(module) for _ in range(PROCESSES))
        print(f"  {module:<28}{costs_ms[module]:6.1f} ms")
    slow = [module for module, cost_ms in costs_ms.items() if cost_ms > LIMIT_MS]
    assert not slow, f"slower than {LIMIT_MS} ms: {', '.join(slow)}"
