"""What a check costs: best, median and slowest of several, for each exercise's solution and for wrong loops.

The learner waits for a check, right or wrong. That of train_with_amp, which trains several small models, must
take no more than 3 s on two cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from benchmarks import promise

REPEATS = 5
LIMIT_S = 3.0


def main() -> None:
    """Print one line per exercise and kind of attempt, and whether train_with_amp's are in time."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["AMP_LESSONS_HOME"] = home  # the learner's own progress is not touched
        _report()


def _report() -> None:
    from amp_lessons import exercises

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    exercises.check("train_with_amp", _unsolved)  # the first check of a process loads what PyTorch loads late
    for exercise in exercises.catalog():
        seconds = _measure(lambda id=exercise.id: exercises.check(id, exercises.solution(id).function))
        print(_line(exercise.id, "solution", seconds))
    for name, attempt in _wrong_loops().items():
        seconds = _measure(lambda attempt=attempt: exercises.check("train_with_amp", attempt))
        print(_line("train_with_amp", name, seconds), promise(LIMIT_S, min(seconds), "s"), sep="; ")


def _measure(check: Callable[[], Any]) -> list[float]:
    seconds = []
    for _ in range(REPEATS):
        start = perf_counter()
        check()
        seconds.append(perf_counter() - start)
    return seconds


def _line(exercise_id: str, attempt: str, seconds: list[float]) -> str:
    best, median, worst = min(seconds), statistics.median(seconds), max(seconds)
    return f"{exercise_id:22} {attempt:22} best {best:.2f} s, median {median:.2f} s, slowest {worst:.2f} s"


def _unsolved(*args: Any, **kwargs: Any) -> None:
    raise NotImplementedError


def _wrong_loops() -> dict[str, Any]:
    """Make loops that fail at the first, at a middle and at the last of the check's problems."""
    from amp_lessons import exercises

    source = exercises.solution("train_with_amp").source
    changes = {
        "the solution": ("", ""),
        "no scaling": ("scaler.scale(loss).backward()", "loss.backward()"),
        "scaled losses logged": ("loss.item()", "scaler.scale(loss).item()"),
        "stops at an overflow": (
            "scaler.scale(loss)",
            "assert loss.isfinite()\n            scaler.scale(loss)",
        ),
    }
    return {name: _defined(source.replace(*change)) for name, change in changes.items()}


def _defined(source: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["train_with_amp"]


if __name__ == "__main__":
    main()
