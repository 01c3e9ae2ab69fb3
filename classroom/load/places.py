"""Where simulated learners come in: a Jupyter server of our own, or the login of a JupyterHub."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import requests

from amp_lessons import lessons
from classroom.load.learner import BrokenError, Learner
from tools.ports import free_port
from tools.programs import Program

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 180.0
_OWN = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "AMP_LESSONS_HOME")


@dataclass(frozen=True)
class Place:
    """``join`` lets learner number n in, with nothing open; ``pid`` is that of a server of ours."""

    join: Callable[[int], Awaitable[Learner]]
    pid: int | None = None


def entered(hub: str | None, learners: int, stack: ExitStack) -> Place:
    """Start what has to be started, until ``stack`` is left. Raises RuntimeError, and ValueError for a file.

    ``hub`` is ``"demo"``, the path of a file that says where a hub is, or None for a server of our own.
    """
    if hub is None:
        return _own_server(stack)
    return _demo_hub(learners, stack) if hub == "demo" else Place(_of_hub(*_read(Path(hub))))


def _own_server(stack: ExitStack) -> Place:
    private, token, port = _folder(stack), secrets.token_hex(16), free_port()
    url = f"http://127.0.0.1:{port}"
    options = [
        f"--port={port}",
        f"--ServerApp.root_dir={lessons.originals()}",
        f"--IdentityProvider.token={token}",
    ]
    fixed = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--ServerApp.port_retries=0"]
    env = _environment() | {name: str(private / name.lower()) for name in _OWN}
    command = [sys.executable, "-m", "jupyter_server", *fixed, *options]
    program = stack.enter_context(Program(command, private / "log", env=env))
    program.wait_until(lambda: _answers(f"{url}/api/status?token={token}"), _TIMEOUT_S)

    async def join(number: int) -> Learner:
        return Learner(url, token)

    return Place(join, program.pid)


def _demo_hub(learners: int, stack: ExitStack) -> Place:
    private, password, port = _folder(stack), secrets.token_urlsafe(12), free_port()
    env = _environment() | {"AMP_DEMO_PASSWORD": password, "AMP_DEMO_PORT": str(port)}
    config = ROOT / "classroom" / "jupyterhub" / "demo_config.py"
    command = [sys.executable, "-m", "jupyterhub", "-f", config]
    program = stack.enter_context(Program(command, private / "log", cwd=private, env=env, end_s=90.0))
    url = f"http://127.0.0.1:{port}"
    program.wait_until(lambda: _answers(f"{url}/hub/health"), _TIMEOUT_S)
    people = {f"learner{number}": password for number in range(1, learners + 1)}
    return Place(_of_hub(url, people), program.pid)


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="classroom-load-", dir="/tmp")))


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def _read(path: Path) -> tuple[str, dict[str, str]]:
    try:
        content = json.loads(path.read_text("utf-8"))
        return content["url"].rstrip("/"), dict(content["passwords"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f'{path} should hold {{"url": …, "passwords": {{name: …}}}}: {error!r}') from error


def _of_hub(url: str, passwords: dict[str, str]) -> Callable[[int], Awaitable[Learner]]:
    people = list(passwords.items())

    async def join(number: int) -> Learner:
        if number >= len(people):
            raise BrokenError(f"the hub has {len(people)} learners, and another one came")
        try:
            return await asyncio.to_thread(_let_in, url, *people[number])
        except requests.RequestException as error:
            raise BrokenError(f"the hub: {error}") from error

    return join


def _let_in(url: str, name: str, password: str) -> Learner:
    """Log in as a person does, have the server started, and take a token for it."""
    with requests.Session() as http:
        page = f"{url}/hub/login"
        http.get(page, timeout=_TIMEOUT_S)
        form = {"username": name, "password": password, "_xsrf": _xsrf(http)}
        http.post(page, data=form, timeout=_TIMEOUT_S)

        def ask(method: str, what: str, content: object = None) -> dict:  # type: ignore[type-arg]
            headers = {"X-XSRFToken": _xsrf(http), "Referer": f"{url}/hub/home"}
            address = f"{url}/hub/api/users/{name}{what}"
            answer = http.request(method, address, headers=headers, json=content, timeout=_TIMEOUT_S)
            answer.raise_for_status()
            return answer.json() if answer.text else {}

        if "" not in ask("GET", "")["servers"]:  # a login may have begun to start it
            ask("POST", "/server", {})
        deadline = time.monotonic() + _TIMEOUT_S
        while not ask("GET", "")["servers"].get("", {}).get("ready"):
            if time.monotonic() > deadline:
                raise BrokenError(f"the server of {name} was not ready after {_TIMEOUT_S:.0f} s")
            time.sleep(0.2)
        return Learner(f"{url}/user/{name}", ask("POST", "/tokens", {"expires_in": 24 * 3600})["token"])


def _xsrf(http: requests.Session) -> str:
    """Return the mark against forged requests that the hub has given for its own pages."""
    cookies = [each for each in http.cookies if each.name == "_xsrf" and "/hub/".startswith(each.path)]
    return str(max(cookies, key=lambda cookie: len(cookie.path)).value) if cookies else ""
