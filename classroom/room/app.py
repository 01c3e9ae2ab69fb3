"""The room as a web application: which address is whose."""

from __future__ import annotations

import re
import secrets

from jupyterhub.services.auth import HubOAuth
from tornado.web import Application

from classroom.room import browsers, kernels
from classroom.room.allowance import Allowance
from classroom.room.state import Room

_BROWSERS_ASK_AGAIN_S = 10  # so long a browser's login, looked up at the hub, is taken to hold
_ID = r"([a-z0-9_.]{1,80})"


def make_app(room: Room, prefix: str, hub_auth: HubOAuth | None = None) -> Application:
    """Return the application that serves ``room`` below ``prefix``, "/services/room/" say."""
    hub_auth = hub_auth or HubOAuth.instance(cache_max_age=_BROWSERS_ASK_AGAIN_S)
    shared = {"room": room, "hub_auth": hub_auth}
    of_kernels = {**shared, "allowance": Allowance()}
    at = re.escape(prefix)
    return Application(
        [
            (at, browsers.Page, shared),
            (f"{at}board", browsers.Board, shared),
            (f"{at}teach/(open|reveal|close|end)", browsers.Teaching, shared),
            (f"{at}(room\\.css|room\\.js)", browsers.File),
            (f"{at}oauth_callback", browsers.LoggedIn, {"hub_auth": hub_auth}),
            (f"{at}api/me", kernels.Membership, of_kernels),
            (f"{at}api/predictions/{_ID}", kernels.Vote, of_kernels),
            (f"{at}api/exercises/{_ID}", kernels.Solved, of_kernels),
        ],
        cookie_secret=secrets.token_bytes(32),
        template_loader=browsers.read_files(),
        log_function=lambda handler: None,  # who asked for what, and when, is not kept
    )
