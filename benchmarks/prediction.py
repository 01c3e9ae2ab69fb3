"""What a memory prediction costs: GPT-2 XL, batch 8 x 1024, in seconds and in memory of this process."""

from __future__ import annotations

import os
import resource
from time import perf_counter

import torch

from amp_lessons.autocast import fake_tensors
from amp_lessons.course.bench import WORKLOADS
from amp_lessons.measure import predict_memory


def main() -> None:
    """Print one line per precision."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    workload = WORKLOADS["GPT-2 XL"]
    start = perf_counter()
    with fake_tensors():
        model = workload.build()
        inputs = workload.batch(model, 8)
    print(f"GPT-2 XL built without data in {perf_counter() - start:.2f} s, transformers' import included")
    for name in ("fp32", "fp16", "bf16"):
        start = perf_counter()
        memory = predict_memory(model, precision_name=name, **inputs)
        seconds, own_gib = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        peak_gib = memory.peak_bytes / 2**30
        print(
            f"{name}: peak {peak_gib:.1f} GiB, predicted in {seconds:.2f} s and {own_gib:.2f} GiB of memory"
        )


if __name__ == "__main__":
    main()
