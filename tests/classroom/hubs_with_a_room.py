"""A real JupyterHub with the live room in it, for tests: dummy users, no servers, nothing left behind."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tools.ports import free_port
from tools.programs import Program

REPOSITORY = Path(__file__).parents[2]
START_TIMEOUT_S = 180
TEACHER, PASSWORD = "teacher", "a long enough password"

CONFIG = """
import sys
from classroom.room.config import add_to

c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy}"
c.ConfigurableHTTPProxy.command = [
    sys.executable, "-c", "from configurable_http_proxy.cli import main; main()"
]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "tokens", "api_token": {admin!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "tokens", "scopes": ["admin:users", "tokens", "inherit"], "services": ["tokens"]}}
]
add_to(c, [{teacher!r}], port={room})
"""


@dataclass
class Hub:
    """A hub that runs in ``folder``."""

    folder: Path
    public: int = field(default_factory=free_port)
    hub: int = field(default_factory=free_port)
    proxy: int = field(default_factory=free_port)
    room: int = field(default_factory=free_port)
    admin: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def page(self) -> str:
        return f"http://127.0.0.1:{self.public}/services/room/"

    @property
    def straight(self) -> str:
        """The room's own address, where kernels ask."""
        return f"http://127.0.0.1:{self.room}/services/room/"

    def token(self, login: str, **wishes: Any) -> str:
        """Return a token of a learner's, such as the hub gives to their server."""
        wishes.setdefault("scopes", ["access:services!service=room"])
        self._api("POST", f"users/{login}", ok=(201, 409))
        return self._api("POST", f"users/{login}/tokens", wishes, ok=(201,)).json()["token"]

    def revoke(self, login: str, token: str) -> None:
        """Take a token back."""
        for each in self._api("GET", f"users/{login}/tokens", ok=(200,)).json()["api_tokens"]:
            self._api("DELETE", f"users/{login}/tokens/{each['id']}", ok=(204,))

    def ask(
        self, method: str, path: str, content: Any = None, token: str | None = None, **headers: str
    ) -> requests.Response:
        """Ask the room as a kernel does; ``content`` is sent as JSON, or as the bytes that it is."""
        given = {} if token is None else {"Authorization": f"token {token}"}
        return ask(method, self.straight + path, content, headers | given)

    def learner(self, login: str, name: str | None = None) -> str:
        """Have a learner join, and return their token."""
        token = self.token(login)
        assert self.ask("PUT", "api/me", {"name": name}, token).status_code == 200
        return token

    def _api(
        self, method: str, path: str, content: Any = None, ok: tuple[int, ...] = ()
    ) -> requests.Response:
        url = f"http://127.0.0.1:{self.hub}/hub/api/{path}"
        reply = ask(method, url, content, {"Authorization": f"token {self.admin}"})
        assert reply.status_code in ok, (path, reply.text)
        return reply


def ask(method: str, url: str, content: Any, headers: dict[str, str]) -> requests.Response:
    sent = {"data": content} if isinstance(content, bytes) else {"json": content}
    return requests.request(method, url, headers=headers, timeout=30, allow_redirects=False, **sent)


@contextmanager
def running_hub(folder: Path) -> Iterator[Hub]:
    """Run a hub in ``folder`` until the block ends, however it does."""
    hub = Hub(folder)
    config = CONFIG.format(password=PASSWORD, teacher=TEACHER, **vars(hub))
    (folder / "jupyterhub_config.py").write_text(config)
    command = [sys.executable, "-m", "jupyterhub", "--config", "jupyterhub_config.py"]
    with Program(command, folder / "hub.log", cwd=folder, env=environment()) as program:
        program.wait_until(lambda: answers(hub), START_TIMEOUT_S)
        yield hub


def environment() -> dict[str, str]:
    """Return an environment in which the package under test is found, and no other hub is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTERHUB_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), kept.get("PYTHONPATH")]))}


def wait_for(condition: Callable[[], Any], what: str = "it", seconds: float = 60) -> Any:
    """Ask until the answer is true, and return it."""
    until = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.05)
    return answer


def answers(hub: Hub) -> bool:
    """Say whether the room answers through the proxy."""
    try:
        return ask("GET", hub.page + "room.css", None, {}).status_code == 200
    except requests.RequestException:
        return False
