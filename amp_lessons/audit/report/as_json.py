"""Documents as JSON that any parser takes: inf and NaN, which JSON has no numbers for, become strings."""

from __future__ import annotations

import json
from typing import Any

from amp_lessons._base.typed_json import finite, made
from amp_lessons.audit.report.document import SCHEMA, VERSION, Document

_ADDED = {"precision": None}  # keys that the first reports of this version lack


def dumps(document: Document, indent: int | None = None) -> str:
    """Write a document as JSON; the same document always gives the same text."""
    return json.dumps(finite(document), indent=indent, allow_nan=False, ensure_ascii=False)


def loads(text: str) -> Document:
    """Read a document. Raises ValueError for text that is none, or of a version that is not known here."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("this is no report of an audit: it is nested too deeply") from None
    return checked(document)


def checked(document: Any) -> Document:
    """Return a document. Raises ValueError for anything else, and for versions that are not known here."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f'this is no report of an audit: its "schema" would be {SCHEMA!r}')
    if document.get("version") == 1:
        document = _of_version_1(document)
    if document.get("version") != VERSION:
        raise ValueError(
            f"this report is of version {document.get('version')!r}, and only versions up to {VERSION} are "
            "known here: read it with the amp-lessons that wrote it"
        )
    try:
        return made(Document, _with_added(document), unknown_too=True)
    except TypeError as error:
        raise ValueError(f"this report is damaged: {error}") from error


def _with_added(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the keys that the first reports of its version lack."""
    steps = [{"backwards": 1} | step for step in document.get("steps", [])]
    precision = document.get("precision")
    ran: dict[str, Any] = {"precision": {"by_hand": []} | precision} if isinstance(precision, dict) else {}
    return _ADDED | document | ({"steps": steps} if steps else {}) | ran


def _of_version_1(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document of version 1 as one of version 2: that of a training of one process."""
    try:
        return document | _new_keys(document)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"this report is damaged: {type(error).__name__}: {error}") from error


def _new_keys(document: dict[str, Any]) -> dict[str, Any]:
    found = document.get("first_nonfinite")
    return {
        "version": 2,
        "findings": [each | {"ranks": []} for each in document.get("findings", [])],
        "layers": [each | {"part": "", "replicated": False} for each in document.get("layers", [])],
        "first_nonfinite": found | {"rank": None} if found else None,
        "ranks": [],
    }
