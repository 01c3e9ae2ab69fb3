"""What a report is as JSON, and reports of earlier versions as one of this.

``VERSION`` goes up when a key changes its meaning or goes away, not when one is added.
"""

from __future__ import annotations

import json
from typing import Any

SCHEMA = "amp-lessons audit report"
VERSION = 2  # 1 knew one process only


def parsed(text: str) -> Any:
    """Parse a report. Raises ValueError for text that is no JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("this is no report of an audit: it is nested too deeply") from None


def current(document: Any) -> dict[str, Any]:
    """Return a document as one of this version. Raises ValueError for what is none, or of a later version."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f'this is no report of an audit: its "schema" would be {SCHEMA!r}')
    if document.get("version") not in (1, VERSION):
        raise ValueError(
            f"this report is of version {document.get('version')!r}, and only versions up to {VERSION} are "
            "known here: read it with the amp-lessons that wrote it"
        )
    try:
        return _with_added(_of_version_2(document))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"this report is damaged: {type(error).__name__}: {error}") from error


def _of_version_2(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2: that of a training of one process."""
    if document["version"] == VERSION:
        return document
    found = document.get("first_nonfinite")
    return document | {
        "findings": [each | {"ranks": []} for each in document.get("findings", [])],
        "layers": [each | {"part": "", "replicated": False} for each in document.get("layers", [])],
        "first_nonfinite": found | {"rank": None} if found else None,
        "ranks": [],
    }


def _with_added(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the keys that the first reports of its version lack."""
    added: dict[str, Any] = {"precision": None} | document
    if added["precision"] is not None:
        added["precision"] = {"by_hand": []} | added["precision"]
    if isinstance(document.get("steps"), list):
        added["steps"] = [{"backwards": 1} | step for step in document["steps"]]
    return added
