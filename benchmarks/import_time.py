"""What importing each part of the package costs beyond ``import torch``."""

from __future__ import annotations

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
    return float(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )


def main() -> None:
    """Print the median of fresh processes for each module; AssertionError if amp_lessons is above it."""
    print(f"import beyond torch, median of {PROCESSES} fresh processes; limit for amp_lessons: {LIMIT_MS} ms")
    costs_ms = {}
    for module in modules():
        costs_ms[module] = median(import_ms(module) for _ in range(PROCESSES))
        print(f"  {module:<28}{costs_ms[module]:6.1f} ms")
    assert costs_ms["amp_lessons"] <= LIMIT_MS, f"amp_lessons is slower than {LIMIT_MS} ms"
