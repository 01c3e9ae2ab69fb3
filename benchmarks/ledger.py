"""What a ledger costs: ``python benchmarks/ledger.py`` prints its figures."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

import torch
from torch import nn

from amp_lessons import autocast

XL = "--xl"


def seconds(runs: dict[str, Callable[[], object]], rounds: int = 5) -> dict[str, float]:
    """Best of several rounds, after one that does not count.

    All runs take their turn in each round, so that what else the machine does hits all alike; that only ever
    makes a run slower, so the best is the least disturbed.
    """
    best = dict.fromkeys(runs, float("inf"))
    for number in range(rounds + 1):
        for name, run in runs.items():
            start = perf_counter()
            run()
            if number > 0:
                best[name] = min(best[name], perf_counter() - start)
    return best


def with_printing_hooks(model: nn.Module, tokens: torch.Tensor, dtype: torch.dtype) -> None:
    """Find dtypes the usual way: a forward hook on every module that prints what comes out."""

    def print_dtype(module: nn.Module, inputs: object, output: object) -> None:
        print(type(module).__name__, getattr(output, "dtype", type(output).__name__))

    handles = [module.register_forward_hook(print_dtype) for module in model.modules()]
    with contextlib.redirect_stdout(io.StringIO()), torch.autocast("cpu", dtype=dtype):
        model(tokens)
    for handle in handles:
        handle.remove()


def under_autocast(model: nn.Module, tokens: torch.Tensor, dtype: torch.dtype) -> None:
    """Run the plain forward pass under CPU autocast."""
    with torch.autocast("cpu", dtype=dtype):
        model(tokens)


def gpt2_on_real_tensors() -> None:
    """Print the cost of a ledger of GPT-2 (12 layers, 2 x 128 tokens) in plain forward passes."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model, tokens = GPT2LMHeadModel(GPT2Config()), torch.randint(0, 50257, (2, 128))
    fake = autocast.fake_copy(model)
    runs = {
        "plain forward, float32": lambda: model(tokens),
        "plain forward, CPU autocast, bfloat16": lambda: under_autocast(model, tokens, torch.bfloat16),
        "forward hooks that print, bfloat16": lambda: with_printing_hooks(model, tokens, torch.bfloat16),
        "record, CUDA's rules, float16": lambda: autocast.record(model, tokens),
        "record, CUDA's rules, bfloat16": lambda: autocast.record(model, tokens, dtype=torch.bfloat16),
        "record with backward, float16": lambda: autocast.record(model, tokens, backward=True),
        "record, fake copy, float16": lambda: autocast.record(fake, tokens),
    }
    best = seconds(runs)
    plain = next(iter(best.values()))
    for name, duration in best.items():
        print(f"GPT-2 {name:40s} {duration:7.3f} s  {duration / plain:5.2f} x plain float32")
    start = perf_counter()
    under_autocast(model, tokens, torch.float16)
    print(f"GPT-2 {'plain forward, CPU autocast, float16':40s} {perf_counter() - start:7.3f} s  (one run)")


def gpt2_xl_on_fake_tensors() -> None:
    """Print seconds and peak memory of a ledger of GPT-2 XL (1.56 billion parameters, 1024 tokens)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    start = perf_counter()
    with autocast.fake_tensors():
        model = GPT2LMHeadModel(GPT2Config(n_layer=48, n_embd=1600, n_head=25))
        tokens = torch.zeros(1, 1024, dtype=torch.long)
    built = perf_counter()
    ledger = autocast.record(model, tokens)
    recorded = perf_counter()
    autocast.record(model, tokens, backward=True)
    done = perf_counter()
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"GPT-2 XL build {built - start:.2f} s, record {recorded - built:.2f} s ({len(ledger.rows)} rows)")
    print(f"GPT-2 XL record with backward {done - recorded:.2f} s; peak memory {peak_gib:.2f} GiB")


def main() -> None:
    """Print all figures; GPT-2 XL first and in a process of its own, so that its peak memory is its own."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    if XL in sys.argv:
        gpt2_xl_on_fake_tensors()
        return
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    subprocess.run([sys.executable, __file__, XL], check=True)
    gpt2_on_real_tensors()


if __name__ == "__main__":
    main()
