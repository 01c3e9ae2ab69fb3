"""Put the room into a hub's configuration: the service, who may enter and teach, where kernels find it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyterhub.roles import get_default_roles
from traitlets.config import LazyConfigValue

from classroom.room.browsers import TEACH

NAME = "room"
ENTER = f"access:services!service={NAME}"
_REPOSITORY = Path(__file__).parents[2]


def add_to(c: Any, teachers: Iterable[str], port: int = 10219) -> None:
    """Add the live room to ``c``, for everybody who may log in, and let ``teachers`` (logins) lead it.

    It listens at ``port`` of this machine only. Keep the port the same when a hub is started again: kernels
    that outlive the hub go on asking there. Call it after ``load_roles`` is set, if you set it: the roles
    ``user`` and ``server`` get one scope more.
    """
    url = f"http://127.0.0.1:{port}"
    c.JupyterHub.services.append(
        {
            "name": NAME,
            "url": url,
            "command": [sys.executable, "-m", "classroom.room"],
            "cwd": str(_REPOSITORY),
            "environment": {"AMP_LESSONS_HUB_PID": str(os.getpid())},  # the room ends when the hub does
            "oauth_no_confirm": True,  # the hub and its room are one to those who log in
            "oauth_client_allowed_scopes": [ENTER, TEACH],
        }
    )
    c.JupyterHub.custom_scopes.update({TEACH: {"description": "Lead the live room of a class."}})
    c.JupyterHub.load_roles = _with_room(_value(c.JupyterHub, "load_roles"), list(teachers))
    c.Spawner.environment.update({"AMP_LESSONS_ROOM": url})


def _with_room(roles: list[dict[str, Any]], teachers: list[str]) -> list[dict[str, Any]]:
    """Return ``roles``, in which users and their servers may enter and teachers may teach."""
    named = {role["name"]: dict(role) for role in roles}
    defaults = {role["name"]: role["scopes"] for role in get_default_roles()}
    for name in ("user", "server"):
        role = named.setdefault(name, {"name": name})
        role["scopes"] = sorted({*role.get("scopes", defaults[name]), ENTER})
    named["room-teacher"] = {"name": "room-teacher", "scopes": [TEACH, ENTER], "users": teachers}
    return list(named.values())


def _value(section: Any, name: str) -> list[Any]:
    """Return a list of the configuration's; empty where nobody has set it."""
    value = section[name]
    return list(value.get_value([]) if isinstance(value, LazyConfigValue) else value)
