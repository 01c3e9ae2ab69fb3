"""What comparing two runs costs, by the size of the model: three runs recorded, of two by themselves.

A comparison is two runs of ten steps, recorded as the command does it, and three steps of the first one
nudged. They are taken in turns with plain runs, so that what else the machine does falls on all, and must
take at most twice the processor time of the two plain runs where a step takes 5 ms or more. Starting the
processes, which takes as long in each run, is left out.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from time import process_time

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from amp_lessons import audit
from benchmarks import promise
from benchmarks.audit import BATCH, TOKENS, WORDS, Transformer

STEPS, NUDGED_STEPS, ROUNDS = 10, 3, 5
AT_MOST, LONG_ENOUGH_MS = 2.0, 5.0
PLAIN, RECORDED, NUDGED = "plain", "recorded", "nudged"
Training = tuple[nn.Module, Tensor, Tensor]  # a model, a batch, and its targets


def mlp() -> Training:
    """Return a model of six layers, of which a step takes about a millisecond."""
    layers = (nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(128, 10)), torch.randn(64, 64), torch.randint(0, 10, (64,))


def wide_mlp() -> Training:
    """Return a model of a million parameters for images of digits."""
    layers = (nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return nn.Sequential(*layers), torch.randn(128, 784), torch.randint(0, 10, (128,))


def small_cnn() -> Training:
    """Return two convolutions with what belongs to them, for small pictures."""
    first = (nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32, 10))
    return model, torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))


def transformer() -> Training:
    """Return a language model of ten million parameters."""
    words = torch.randint(0, WORDS, (BATCH, TOKENS + 1))
    return Transformer(), words[:, :-1], words[:, 1:].flatten()


def main() -> None:
    """Print, for each model, what the runs take, and whether the promise is kept."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for make in (mlp, wide_mlp, small_cnn, transformer):
        torch.manual_seed(0)
        measure(make)


def measure(make: Callable[[], Training]) -> None:
    """Take runs of one model in turns, and print what they took."""
    training = make()
    optimizer = torch.optim.AdamW(training[0].parameters(), lr=1e-4)
    run_ms(training, optimizer, PLAIN)
    took: dict[str, list[float]] = {PLAIN: [], RECORDED: [], NUDGED: []}
    for _ in range(ROUNDS):
        for kind, times in took.items():
            times.append(run_ms(training, optimizer, kind))
    report(make.__name__, {kind: statistics.median(times) for kind, times in took.items()})


def run_ms(training: Training, optimizer: torch.optim.Optimizer, kind: str) -> float:
    """Return what a run of a kind takes of the processor, in ms."""
    model, batch, targets = training
    start = process_time()
    with ExitStack() as stack:
        if kind != PLAIN:
            nudge = audit.Nudge({}) if kind == NUDGED else None
            run = stack.enter_context(audit.recording(model, steps=STEPS, every=None, nudged_by=nudge))
        for _ in range(NUDGED_STEPS if kind == NUDGED else STEPS):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=isinstance(model, Transformer)):
                loss = cross_entropy(model(batch).flatten(0, -2).float(), targets)
            loss.backward()
            optimizer.step()
    if kind != PLAIN:
        assert run.recording.calls
    return (process_time() - start) * 1e3


def report(name: str, medians: dict[str, float]) -> None:
    """Print the medians, and what was promised."""
    step = medians[PLAIN] / STEPS
    three = (2 * medians[RECORDED] + medians[NUDGED]) / (2 * medians[PLAIN])
    two = medians[RECORDED] / medians[PLAIN]
    took = f"{three:.3g} times the two"
    if step >= LONG_ENOUGH_MS:
        took = promise(AT_MOST, three, "times the two")
    print(f"{name}, {step:.1f} ms a step: all three runs, {took}; without the nudged one {two:.2f} times")


if __name__ == "__main__":
    main()
