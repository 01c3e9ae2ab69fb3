import statistics
import time


def time_step(fn, *, warmup, repeats, synchronize):
    """Return the median time of one call of ``fn`` in milliseconds."""
    for _ in range(warmup):
        fn()
    samples_ms = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        fn()
        synchronize()
        samples_ms.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples_ms)
