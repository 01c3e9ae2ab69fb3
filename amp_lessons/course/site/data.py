"""Data for the pages' scripts: a page that is opened as a file may fetch no JSON, but may load a script."""

from __future__ import annotations

import json


def as_script(name: str, value: object) -> str:
    """Return a script that assigns ``value`` to ``name``; nothing in it can end a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f"{name} = {text};\n"
