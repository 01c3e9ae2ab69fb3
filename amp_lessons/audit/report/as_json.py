"""Documents as JSON that any parser takes: inf and NaN, which JSON has no numbers for, become strings."""

from __future__ import annotations

import json
import math
from typing import Any, cast

from amp_lessons.audit.report.document import SCHEMA, VERSION, Document

# As protobuf's JSON does it, and Python's float() reads it: "Infinity", "-Infinity", "NaN".
_IN_WORDS = {math.inf: "Infinity", -math.inf: "-Infinity"}
_NUMBERS = ("scale", "loss", "gradient_norm", "learning_rate", "largest", "norm", "underflowed_norm")
_SHARES = ("underflow_norm_fraction",)


def dumps(document: Document, indent: int | None = None) -> str:
    """Write a document as JSON; the same document always gives the same text."""
    return json.dumps(_finite(document), indent=indent, allow_nan=False, ensure_ascii=False)


def loads(text: str) -> Document:
    """Read a document. Raises ValueError for text that is none, or of a version that is not known here."""
    try:
        document = json.loads(text, object_hook=_with_numbers)
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
    missing = Document.__required_keys__ - document.keys()
    if missing:
        raise ValueError(f"this report is damaged: it lacks {', '.join(sorted(missing))}")
    return cast(Document, document)


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


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _IN_WORDS.get(value, "NaN")
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def _with_numbers(entry: dict[str, Any]) -> dict[str, Any]:
    """Turn back the strings where a number belongs; a layer may be called NaN."""
    for key in (*_NUMBERS, *_SHARES):
        if isinstance(entry.get(key), str):
            entry[key] = float(entry[key])
    return entry
