"""Asking the room: one request, one answer, straight to the class's server, with the hub's own token."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_WAIT_S = 5.0
_MOST_BYTES = 10_000


class UnreachableError(Exception):
    """The room did not answer."""


@dataclass(frozen=True)
class Reply:
    """What the room said: a status as HTTP has them, and its reason, if it refused."""

    status: int
    message: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow nowhere: the token is for the room alone."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


# Not through a proxy that the environment names, either.
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


@dataclass(frozen=True)
class Wire:
    """Where the room is, and the token by which it knows who asks."""

    url: str
    token: str = field(repr=False)

    def ask(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Reply:
        """Ask once, and wait at most seconds. Raises UnreachableError if there is no answer."""
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with _OPEN(request, timeout=_WAIT_S) as answer:
                return Reply(answer.status, "")
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _message(error))
        except (OSError, ValueError) as error:
            raise UnreachableError(str(error)) from error


def wire(environment: Mapping[str, str] = os.environ) -> Wire | None:
    """Return the way to the room, as the hub names it to its learners' kernels; None outside a hub."""
    try:
        origin, token = environment["AMP_LESSONS_ROOM"], environment["JUPYTERHUB_API_TOKEN"]
    except KeyError:
        return None
    if urlsplit(origin).scheme not in ("http", "https"):
        return None
    base = environment.get("JUPYTERHUB_BASE_URL", "/").strip("/")
    return Wire("/".join(filter(None, [origin.rstrip("/"), base, "services/room/"])), token)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(_MOST_BYTES))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
