"""A learner's browser, as far as the server sees it: HTTP to begin with, then one websocket to a kernel."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

_LARGEST_MESSAGE = 2**28
_START_TIMEOUT_S = 180.0


class BrokenError(Exception):
    """A learner could not go on; the message says what was seen."""


@dataclass
class CellRun:
    """What came of one message: how long until all of it was there, and what had gone wrong, if anything."""

    seconds: float
    error: str = ""
    messages: int = 0
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Waiting:
    expects_reply: bool
    done: asyncio.Future[None]
    reply: dict[str, Any] = field(default_factory=dict)
    messages: int = 0
    idle: bool = False


class Learner:
    """One learner at ``url``, a Jupyter server's address, let in by ``token``; use it in ``async with``."""

    def __init__(self, url: str, token: str, folder: str = "") -> None:
        self._url, self._folder = url.rstrip("/"), folder
        self._headers = {"Authorization": f"token {token}"}
        self._session = uuid.uuid4().hex
        self._waiting: dict[str, _Waiting] = {}
        self._socket: WebSocketClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._broken = ""
        self.kernel = ""
        self.pid = 0
        self.sliders: dict[str, dict[str, Any]] = {}

    async def __aenter__(self) -> Learner:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._socket is not None:
            self._socket.close()
        if self.kernel:
            with contextlib.suppress(HTTPClientError, OSError, BrokenError):
                await self._http("DELETE", f"/api/kernels/{self.kernel}")

    async def open(self) -> float:
        """Start a kernel and wait until it answers; return the seconds this took."""
        begun = time.perf_counter()
        body = json.dumps({"name": "python3", "path": self._folder})
        self.kernel = json.loads(await self._http("POST", "/api/kernels", body))["id"]
        address = f"{self._url.replace('http', 'ws', 1)}/api/kernels/{self.kernel}/channels"
        request = HTTPRequest(
            f"{address}?session_id={self._session}", headers=self._headers, connect_timeout=_START_TIMEOUT_S
        )
        self._socket = await websocket_connect(request, max_message_size=_LARGEST_MESSAGE)
        self._reading = asyncio.create_task(self._read())
        self.pid = await self.ask("__import__('os').getpid()")
        return time.perf_counter() - begun

    async def ask(self, expression: str, timeout_s: float = _START_TIMEOUT_S) -> Any:
        """Evaluate an expression in the kernel; its value has to go into JSON. Raises BrokenError."""
        answer = await self.run("", timeout_s, {"it": f"__import__('json').dumps({expression})"})
        found = answer.content["user_expressions"]["it"]
        if found["status"] != "ok":
            raise BrokenError(f"{found['ename']}: {found['evalue']}")
        return json.loads(ast.literal_eval(found["data"]["text/plain"]))

    async def run(self, code: str, timeout_s: float, expressions: Mapping[str, str] | None = None) -> CellRun:
        """Run a cell. Raises BrokenError where nothing comes in time, or the kernel has died."""
        content = {
            "code": code,
            "silent": False,
            "store_history": bool(code),
            "user_expressions": dict(expressions or {}),
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return await self._send("execute_request", content, timeout_s)

    async def move(self, slider: str, timeout_s: float) -> CellRun:
        """Move a slider to its next place, as a browser says it."""
        state = self.sliders[slider]
        return await self._send(
            "comm_msg",
            {"comm_id": slider, "data": {"method": "update", "state": _moved(state), "buffer_paths": []}},
            timeout_s,
        )

    async def _send(self, kind: str, content: dict[str, Any], timeout_s: float) -> CellRun:
        if self._broken or self._socket is None:
            raise BrokenError(self._broken or "the learner has opened nothing")
        name = uuid.uuid4().hex
        header = {
            "msg_id": name,
            "msg_type": kind,
            "session": self._session,
            "username": "",
            "version": "5.3",
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        waiting = self._waiting[name] = _Waiting(kind == "execute_request", _future())
        begun = time.perf_counter()
        try:
            await self._socket.write_message(json.dumps({**message, "channel": "shell", "buffers": []}))
            await asyncio.wait_for(waiting.done, timeout_s)
        except asyncio.TimeoutError as error:
            raise BrokenError(f"nothing came of {kind} for {timeout_s:.0f} s") from error
        except WebSocketClosedError as error:
            raise BrokenError("the server closed the connection") from error
        finally:
            del self._waiting[name]
        return CellRun(time.perf_counter() - begun, _error(waiting.reply), waiting.messages, waiting.reply)

    async def _read(self) -> None:
        assert self._socket is not None
        while (message := await self._socket.read_message()) is not None:
            self._take_in(_parsed(message))
        self._break("the server closed the connection")

    def _take_in(self, message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        waiting = self._waiting.get(message["parent_header"].get("msg_id", ""))
        if kind == "comm_open" and _is_slider(content["data"].get("state", {})):
            self.sliders[content["comm_id"]] = content["data"]["state"]
        if kind == "status" and content["execution_state"] in ("restarting", "autorestarting", "dead"):
            self._break(f"the kernel died (the server says {content['execution_state']})")
        if waiting is None:
            return
        waiting.messages += 1
        if kind == "execute_reply":
            waiting.reply = content
        if kind == "status" and content["execution_state"] == "idle":
            waiting.idle = True
        if waiting.idle and (waiting.reply or not waiting.expects_reply) and not waiting.done.done():
            waiting.done.set_result(None)

    def _break(self, why: str) -> None:
        """Fail whatever is still awaited: no answer will come."""
        self._broken = self._broken or why
        for waiting in self._waiting.values():
            if not waiting.done.done():
                waiting.done.set_exception(BrokenError(self._broken))

    async def _http(self, method: str, path: str, body: str | None = None) -> bytes:
        request = HTTPRequest(
            self._url + path,
            method,
            headers={**self._headers, "Content-Type": "application/json"},
            body=body,
            request_timeout=_START_TIMEOUT_S,
        )
        try:
            return (await AsyncHTTPClient(max_clients=100).fetch(request)).body
        except HTTPClientError as error:
            said = error.response.body.decode(errors="replace")[:300] if error.response else ""
            raise BrokenError(f"{method} {path}: {error} {said}") from error
        except OSError as error:
            raise BrokenError(f"{method} {path}: {error}") from error


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _is_slider(state: Mapping[str, Any]) -> bool:
    """Recognise the course's sliders, and those of ipywidgets, by their names."""
    name = state.get("_anywidget_id") or state.get("_model_name", "")
    return name.removesuffix("Model").endswith("Slider")


def _moved(state: dict[str, Any]) -> dict[str, Any]:
    """Move a slider by a step, up or down in turn; keep the place in ``state``."""
    if "index" in state:
        last = len(state["_options_labels"]) - 1
        state["index"] += 1 if state["index"] < last else -1
        return {"index": state["index"]}
    step = state.get("step") or 1
    state["value"] += step if state["value"] + step <= state["max"] else -step
    return {"value": state["value"]}


def _error(reply: Mapping[str, Any]) -> str:
    return f"{reply['ename']}: {reply['evalue']}"[:300] if reply.get("status") == "error" else ""


def _parsed(message: str | bytes) -> dict[str, Any]:
    """Read a message; one with buffers comes as bytes, with where each part begins at its head."""
    if isinstance(message, bytes):
        parts = int.from_bytes(message[:4], "big")
        places = [int.from_bytes(message[4 * i : 4 * i + 4], "big") for i in range(1, parts + 1)]
        message = message[places[0] : places[1] if parts > 1 else None].decode()
    found: dict[str, Any] = json.loads(message)
    return found
