"""What people see in their browsers, behind the hub's login: the page, its content, the teacher's buttons."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from jupyterhub.services.auth import HubOAuth, HubOAuthCallbackHandler, HubOAuthenticated
from tornado.template import Loader
from tornado.web import HTTPError, RequestHandler

from classroom.room import course
from classroom.room.headers import SAFE
from classroom.room.state import Room, UnknownError

TEACH = "custom:amp-lessons:teach"  # the scope of those who may show, reveal and end
_FILES = {"room.css": "text/css", "room.js": "text/javascript"}
FOLDER = Path(__file__).parent / "page"


def read_files() -> Loader:
    """Read what the page is made of, for later: who serves it need not be allowed to read it."""
    course.predictions(), course.tasks()
    for name in _FILES:
        _read(name)
    templates = Loader(str(FOLDER))
    templates.load("page.html")
    return templates


@functools.cache
def _read(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


class ForBrowser(HubOAuthenticated, RequestHandler):
    """A request from a browser, by somebody who is logged in at the hub."""

    def initialize(self, room: Room, hub_auth: HubOAuth) -> None:
        """Take what all requests share."""
        self.room, self.hub_auth = room, hub_auth

    def set_default_headers(self) -> None:
        """Send the room's headers with every answer."""
        for name, value in SAFE.items():
            self.set_header(name, value)

    async def prepare(self) -> None:
        """Ask the hub who this is, and refuse what a page of another site may have had a browser send.

        Whatever asks for the user later finds the answer instead of waiting for it.
        """
        await self.hub_auth.get_user(self, sync=False)
        if self.request.method != "GET":
            self.check_xsrf_cookie()

    @property
    def is_teacher(self) -> bool:
        """Whether who asks may show, reveal and end."""
        return TEACH in self.current_user["scopes"]

    def require_login(self) -> None:
        """Refuse who is not logged in; a script that asks cannot follow to a login page."""
        if self.current_user is None:
            raise HTTPError(403)


class Page(ForBrowser):
    """The page."""

    def get(self) -> None:
        """Show it, to the teacher with buttons; who is not logged in is sent to the hub's login."""
        if self.current_user is None:
            self.redirect(self.get_login_url())
            return
        self.render(
            "page.html", teacher=self.is_teacher, lessons=course.predictions() if self.is_teacher else {}
        )


class Board(ForBrowser):
    """What stands on the page."""

    def get(self) -> None:
        """Send it, if anything has changed since the version ``after``."""
        self.require_login()
        if self.get_query_argument("after", "") == self.room.version:
            self.set_status(204)
            return
        board = self.room.board()
        self.finish({**board, "answered": self.room.answered()} if self.is_teacher else board)


class Teaching(ForBrowser):
    """The teacher's buttons."""

    def post(self, action: str) -> None:
        """Show a prediction, say which answer is right, hide it, or end the class."""
        self.require_login()
        if not self.is_teacher:
            raise HTTPError(403)
        act = {
            "open": self._open,
            "reveal": self.room.reveal,
            "close": self.room.close,
            "end": self.room.end,
        }[action]
        act()
        self.finish({"version": self.room.version})

    def _open(self) -> None:
        try:
            self.room.open(json.loads(self.request.body)["id"])
        except (ValueError, KeyError, TypeError, UnknownError):
            raise HTTPError(404) from None


class File(RequestHandler):
    """The page's style and its script: the same for all, and open to all."""

    def set_default_headers(self) -> None:
        """Send the room's headers with every answer."""
        for name, value in SAFE.items():
            self.set_header(name, value)

    def get(self, name: str) -> None:
        """Send one of the two."""
        self.set_header("Content-Type", f"{_FILES[name]}; charset=utf-8")
        self.finish(_read(name))


class LoggedIn(HubOAuthCallbackHandler):
    """Where the hub sends people back to once they have logged in."""

    def initialize(self, hub_auth: HubOAuth) -> None:
        """Take what all requests share."""
        self.hub_auth = hub_auth

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer what to do; a bookmark of this address is the usual reason."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(
            f"The login did not work ({status_code}). Open the room's page again: {self.hub_auth.base_url}"
        )
