"""All that a thing shows of itself in a notebook, as one text to hold against a golden file."""

from __future__ import annotations

from typing import Any


def forms(thing: Any) -> str:
    """Return text, markdown and HTML, one below the other."""
    bundle = thing._repr_mimebundle_()
    assert str(thing) == bundle["text/plain"] or not hasattr(thing, "as_html")
    return "\n".join(f"=== {kind}\n{bundle[kind]}" for kind in sorted(bundle))
