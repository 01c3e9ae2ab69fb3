"""What is new in a release: ``python -m tools.release 0.4.0`` prints its part of CHANGELOG.md.

It refuses where the version is not that of ``pyproject.toml``, or the changelog says nothing of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def notes(version: str, root: Path = ROOT) -> str:
    """Return what CHANGELOG.md says of a version. Raises ValueError where none can be released."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    if version != project["version"]:
        raise ValueError(f"the tag says {version}, pyproject.toml {project['version']}")
    parts = re.split(r"(?m)^## (\S+).*\n", (root / "CHANGELOG.md").read_text("utf-8"))
    found = dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))
    if not found.get(version):
        raise ValueError(f"CHANGELOG.md has no part “## {version}”, or nothing stands in it")
    return found[version]


if __name__ == "__main__":
    try:
        print(notes(*sys.argv[1:]))
    except (TypeError, ValueError) as error:
        sys.exit(f"python -m tools.release VERSION: {error}")
