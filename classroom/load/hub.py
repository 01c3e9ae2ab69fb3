"""Learners of a JupyterHub: each logs in as a person does, has a server started, and takes a token for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import requests

from classroom.jupyterhub.children import end_with_the_parent
from classroom.load.learner import BrokenError, Learner
from classroom.load.server import ROOT

_TIMEOUT_S = 180.0
_END_TIMEOUT_S = 90


class Hub:
    """A hub at ``url``, and the ``passwords`` of its learners by their names."""

    def __init__(self, url: str, passwords: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        self._people = [(name, word) for name, word in passwords.items() if name != "teacher"]

    @classmethod
    def read(cls, path: Path) -> Hub:
        """Read both from JSON with ``url`` and ``passwords``. Raises ValueError where they are not there."""
        try:
            content = json.loads(path.read_text("utf-8"))
            return cls(content["url"], content["passwords"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f'{path} should hold {{"url": …, "passwords": {{name: …}}}}: {error!r}'
            ) from error

    async def join(self, number: int) -> Learner:
        """Let learner ``number`` in. Raises BrokenError where the hub does not."""
        if number >= len(self._people):
            raise BrokenError(f"the hub has {len(self._people)} learners, and another one came")
        try:
            return await asyncio.to_thread(self._let_in, *self._people[number])
        except requests.RequestException as error:
            raise BrokenError(f"the hub: {error}") from error

    def _let_in(self, name: str, password: str) -> Learner:
        with requests.Session() as http:
            page = f"{self.url}/hub/login"
            http.get(page, timeout=_TIMEOUT_S)
            form = {"username": name, "password": password, "_xsrf": _xsrf(http)}
            http.post(page, data=form, timeout=_TIMEOUT_S)
            if "" not in self._ask(http, "GET", name)["servers"]:  # a login may have begun to start it
                self._ask(http, "POST", f"{name}/server", {})
            deadline = time.monotonic() + _TIMEOUT_S
            while not self._ask(http, "GET", name)["servers"].get("", {}).get("ready"):
                if time.monotonic() > deadline:
                    raise BrokenError(f"the server of {name} was not ready after {_TIMEOUT_S:.0f} s")
                time.sleep(0.2)
            token = self._ask(http, "POST", f"{name}/tokens", {"expires_in": 24 * 3600})["token"]
        return Learner(f"{self.url}/user/{name}", token)

    def _ask(self, http: requests.Session, method: str, what: str, content: object = None) -> dict:  # type: ignore[type-arg]
        """Ask the hub's API as its own pages do."""
        headers = {"X-XSRFToken": _xsrf(http), "Referer": f"{self.url}/hub/home"}
        address = f"{self.url}/hub/api/users/{what}"
        answer = http.request(method, address, headers=headers, json=content, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return answer.json() if answer.text else {}


class DemoHub(ExitStack):
    """The course's own hub with ``count`` made-up learners; use it in ``with``."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __enter__(self) -> DemoHub:
        super().__enter__()
        # A short path: sockets of kernels, whose paths may have 107 bytes, lie below it.
        state = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="load-", dir="/tmp")))
        command = ["-m", "classroom.jupyterhub", "--demo", str(self._count), "--state", str(state)]
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL, preexec_fn=end_with_the_parent
        )
        self.callback(self._end)
        running, deadline = state / "hub" / "running.json", time.monotonic() + _TIMEOUT_S
        while not running.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(
                    "the hub did not come up: python -m classroom.jupyterhub --demo 1 says why"
                )
            time.sleep(0.1)
        self.hub = Hub.read(running)
        return self

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _xsrf(http: requests.Session) -> str:
    """Return the mark against forged requests that the hub has given for its own pages."""
    cookies = [
        cookie for cookie in http.cookies if cookie.name == "_xsrf" and "/hub/".startswith(cookie.path)
    ]
    return str(max(cookies, key=lambda cookie: len(cookie.path)).value) if cookies else ""
