"""What learners' kernels ask of the room: to join, to leave, to note an answer or a solved exercise.

Who asks is told by the hub's token in the request's header, and by nothing else: no cookie is looked at, so
no page in a browser can ask in somebody's name; and no request names a learner, so none can name another.
The hub is asked anew every time: a token that was revoked or has expired is worth nothing from then on.
"""

from __future__ import annotations

import json
from typing import Any

from jupyterhub.services.auth import HubOAuth
from tornado.web import HTTPError, RequestHandler

from classroom.room.allowance import Allowance
from classroom.room.headers import SAFE
from classroom.room.names import NameRefusedError
from classroom.room.state import NotTakingPartError, Room, UnknownError

MOST_BYTES = 1024  # of a request's body
_STATUS: dict[type, int] = {NameRefusedError: 400, UnknownError: 404, NotTakingPartError: 409}


class FromKernel(RequestHandler):
    """A request of a kernel, by a learner whom the hub knows."""

    def initialize(self, room: Room, hub_auth: HubOAuth, allowance: Allowance) -> None:
        """Take what all requests share."""
        self.room, self.hub_auth, self.allowance = room, hub_auth, allowance

    def set_default_headers(self) -> None:
        """Send the room's headers with every answer."""
        for name, value in SAFE.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        """Find out whose request this is, or refuse it."""
        token = self.hub_auth.get_token(self, in_cookie=False)
        if not token:
            raise HTTPError(401)
        if not self.allowance.take(token):
            self.set_header("Retry-After", "5")
            raise HTTPError(429)
        user = await self.hub_auth.user_for_token(token, use_cache=False, sync=False)
        if user is None or user.get("kind") != "user":
            raise HTTPError(403)
        if not self.hub_auth.check_scopes(self.hub_auth.access_scopes, user):
            raise HTTPError(403)
        self.login: str = user["name"]

    def content(self) -> dict[str, Any]:
        """Return the JSON object that was sent."""
        try:
            content = json.loads(self.request.body)
        except (ValueError, RecursionError):
            raise HTTPError(400) from None
        if not isinstance(content, dict):
            raise HTTPError(400)
        return content

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer in JSON what is wrong: of the room's own errors the message, else the status in words."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        status = _STATUS.get(type(error))
        if status is not None:
            self.set_status(status)
        self.finish({"message": self._reason if status is None else str(error)})

    def log_exception(self, *exception: Any) -> None:
        """Log nothing of refusals: what learners do is not kept, in a log neither."""
        if exception[0] not in (*_STATUS, HTTPError):
            super().log_exception(*exception)


class Membership(FromKernel):
    """Taking part."""

    def put(self) -> None:
        """Join, or change the name."""
        self.room.join(self.login, self.content().get("name"))
        self.finish({"message": "joined"})

    def delete(self) -> None:
        """Leave, and be forgotten."""
        self.room.leave(self.login)
        self.finish({"message": "forgotten"})


class Vote(FromKernel):
    """An answer to a prediction."""

    def put(self, question_id: str) -> None:
        """Note or replace it."""
        self.room.vote(self.login, question_id, self.content().get("choice"))
        self.finish({"message": "noted"})


class Solved(FromKernel):
    """A solved exercise."""

    def put(self, exercise_id: str) -> None:
        """Note it."""
        self.room.solve(self.login, exercise_id)
        self.finish({"message": "noted"})
