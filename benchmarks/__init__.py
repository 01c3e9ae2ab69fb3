"""What the course promises about its speed, measured. ``python -m benchmarks`` runs every file here.

Each file has a ``main()`` that measures and prints. A time that is promised is printed beside the time it
took, and a promise that is not kept ends nothing: what else the machine does can break it. A benchmark fails
only if it cannot measure.
"""


def promise(promised: float, took: float, unit: str) -> str:
    """Return "promised 50 ms, took 61 ms: not kept", or the same with "kept"."""
    kept = "kept" if took <= promised else "not kept"
    return f"promised {promised:g} {unit}, took {took:.3g} {unit}: {kept}"
