"""What comparing two runs costs: steps of a transformer with ten million parameters, recorded and nudged.

Steps are taken in turns, plain, recorded and nudged, so that what else the machine does falls on all. A
comparison is two recorded runs and a nudged one, and must take at most twice what the two take by themselves.
"""

from __future__ import annotations

import os
import statistics
from contextlib import ExitStack

import torch

from amp_lessons import audit
from benchmarks import promise
from benchmarks.audit import BATCH, TOKENS, WORDS, Transformer, step_ms

STEPS, ROUNDS = 3, 4
AT_MOST = 2.0
PLAIN, RECORDED, NUDGED = "plain", "recorded", "nudged"


def main() -> None:
    """Print the median step of each kind, the size of a recording, and whether the promise is kept."""
    torch.manual_seed(0)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, WORDS, (BATCH, TOKENS + 1))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    step_ms(model, optimizer, words)
    nudge = audit.Nudge({})
    took: dict[str, list[float]] = {PLAIN: [], RECORDED: [], NUDGED: []}
    for _ in range(ROUNDS):
        for kind, times in took.items():
            with ExitStack() as stack:
                if kind != PLAIN:
                    nudged_by = nudge if kind == NUDGED else None
                    run = stack.enter_context(audit.recording(model, steps=STEPS, nudged_by=nudged_by))
                times += [step_ms(model, optimizer, words) for _ in range(STEPS)]
    report({kind: statistics.median(times) for kind, times in took.items()})
    print(f"a recording of {STEPS} steps: {len(run.recording.as_json()) / 2**20:.1f} MiB")


def report(medians: dict[str, float]) -> None:
    """Print the medians and what was promised."""
    print(", ".join(f"{kind} {ms:.0f} ms" for kind, ms in medians.items()))
    recorded, nudged = (medians[kind] / medians[PLAIN] for kind in (RECORDED, NUDGED))
    print(f"of plain steps, a recorded one takes {recorded:.2f} and a nudged one {nudged:.2f}")
    print(f"all three runs, {promise(AT_MOST, recorded + nudged / 2, 'times the two')}")


if __name__ == "__main__":
    main()
