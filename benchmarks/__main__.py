"""Run all benchmarks, or those named: ``python -m benchmarks [NAME ...]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    """Run each benchmark in a process of its own; 1 if one failed, 2 for a name that is none."""
    there = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    unknown = [name for name in wanted if name not in there]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    failed = [name for name in wanted or there if run(name) != 0]
    for name in failed:
        print(f"benchmark {name} failed", file=sys.stderr)
    return int(bool(failed))


def run(name: str) -> int:
    """Run one benchmark where no other has warmed a cache, raised the peak memory or imported a module."""
    print(f"== {name}", flush=True)
    return subprocess.run([sys.executable, "-c", f"from benchmarks.{name} import main; main()"]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
