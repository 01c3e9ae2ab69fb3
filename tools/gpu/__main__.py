"""``make gpu`` calls ``python -m tools.gpu``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from tools.gpu.command import main
    except ModuleNotFoundError as error:
        print(
            f"make gpu needs the Python package {error.name}, which {sys.executable} lacks. Install it "
            "there, put it on PYTHONPATH, or name another Python: make gpu PYTHON=…",
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(main())
