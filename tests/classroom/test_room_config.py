"""What the live room adds to a hub's configuration, and what it leaves as it was."""

from __future__ import annotations

import pytest

pytest.importorskip("jupyterhub")

from jupyterhub.roles import get_default_roles
from traitlets.config import Config

from classroom.room.config import ENTER, add_to

DEFAULTS = {role["name"]: set(role["scopes"]) for role in get_default_roles()}


def roles(c):
    return {role["name"]: role for role in c.JupyterHub.load_roles}


def test_users_and_their_servers_may_enter_and_keep_what_they_could_do():
    c = Config()
    add_to(c, ["ada"])
    for name in ("user", "server"):
        assert set(roles(c)[name]["scopes"]) == DEFAULTS[name] | {ENTER}
    assert roles(c)["room-teacher"]["users"] == ["ada"]
    assert ENTER in roles(c)["room-teacher"]["scopes"]


def test_a_hubs_own_roles_stay():
    c = Config()
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", "shares!user"]},
        {"name": "grader", "scopes": ["list:users"], "users": ["bob"]},
    ]
    add_to(c, ["ada"])
    assert set(roles(c)["user"]["scopes"]) == {"self", "shares!user", ENTER}
    assert roles(c)["grader"] == {"name": "grader", "scopes": ["list:users"], "users": ["bob"]}
    assert len(c.JupyterHub.load_roles) == len(roles(c))


def test_it_listens_to_its_own_machine_alone():
    c = Config()
    add_to(c, ["ada"], port=12345)
    (service,) = c.JupyterHub.services.get_value([])
    assert service["url"] == "http://127.0.0.1:12345"
    assert c.Spawner.environment.get_value({}) == {"AMP_LESSONS_ROOM": service["url"]}
