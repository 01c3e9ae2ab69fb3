"""What ``audit.monitor`` costs: steps of the transformer of ``audit.py``, in turns plain and monitored.

A look comes after a hundred times as long as the last one took; here a block of steps holds the first look,
which comes at once, so each look is also timed by itself. A run must take at most 1.02 times as long.
"""

from __future__ import annotations

import os
import statistics

import torch

from amp_lessons import audit
from benchmarks import promise
from benchmarks.audit import BATCH, TOKENS, WORDS, Transformer, step_ms

ROUNDS, STEPS = 3, 8
COSTS, PAUSE = 1.02, 100


def main() -> None:
    """Print the median step, plain, monitored and looked at, and what a long run costs by them."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, WORDS, (BATCH, TOKENS + 1))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    step_ms(model, optimizer, words)
    plain, between, looked = measure(model, optimizer, words)
    base, quiet, look = (statistics.median(each) for each in (plain, between, looked))
    print(f"plain {base:.0f} ms, monitored {quiet:.0f} ms, with a look {look:.0f} ms")
    every = max(1.0, PAUSE * (look - quiet) / quiet)  # steps
    average = quiet + max(look - quiet, 0.0) / every
    print(f"a long run, {promise(COSTS, average / base, 'times the plain one')}")


def measure(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, words: torch.Tensor
) -> tuple[list[float], list[float], list[float]]:
    """Time steps in ms, in turns: plain ones, monitored ones, and those that are looked at."""
    plain: list[float] = []
    between: list[float] = []
    looked: list[float] = []
    for _ in range(ROUNDS):
        plain += [step_ms(model, optimizer, words) for _ in range(STEPS)]
        with audit.monitor(model, optimizer, every=STEPS):
            looked.append(step_ms(model, optimizer, words))
            between += [step_ms(model, optimizer, words) for _ in range(STEPS - 1)]
    return plain, between, looked


if __name__ == "__main__":
    main()
