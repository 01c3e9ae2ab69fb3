"""Somebody at a browser, without the browser: logs in, starts a server, runs cells over the websocket."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests
import websocket

from tests.classroom.hubs_with_a_room import wait_for

PATIENCE_S = 90


@dataclass
class Visitor:
    """One person who visits the hub."""

    url: str
    name: str
    password: str
    http: requests.Session = field(default_factory=requests.Session)

    def log_in(self):
        page = f"{self.url}/hub/login"
        self.http.get(page, timeout=PATIENCE_S)
        form = {"username": self.name, "password": self.password, "_xsrf": self._xsrf("/hub/")}
        return self.http.post(page, data=form, timeout=PATIENCE_S)

    def start_server(self):
        """Ask for the server and wait until it answers, then take its cookies."""
        self.hub("POST", f"users/{self.name}/server")
        wait_for(lambda: self.server()["ready"], f"{self.name}'s server", PATIENCE_S)
        answer = self.http.get(f"{self.url}/user/{self.name}/lab", timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        return self

    def server(self):
        return self.hub("GET", f"users/{self.name}").json()["servers"].get("", {"ready": False})

    def hub(self, method, path, **more):
        """Ask the hub's API as its own pages do."""
        headers = {"X-XSRFToken": self._xsrf("/hub/"), "Referer": f"{self.url}/hub/home"}
        return self._request(method, f"/hub/api/{path}", headers, more)

    def ask(self, method, path, whose=None, **more):
        """Ask a server's API: one's own, or somebody else's."""
        base = f"/user/{whose or self.name}/"
        headers = {"X-XSRFToken": self._xsrf(base)}
        return self._request(method, base + path, headers, more)

    def _request(self, method, path, headers, more):
        return self.http.request(method, self.url + path, headers=headers, timeout=PATIENCE_S, **more)

    def kernel(self):
        answer = self.ask("POST", "api/kernels", json={"name": "python3"})
        assert answer.status_code == 201, answer.text
        return Kernel(self, answer.json()["id"])

    def cookies(self):
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.http.cookies)

    def _xsrf(self, path):
        cookies = [each for each in self.http.cookies if each.name == "_xsrf" and path.startswith(each.path)]
        return max(cookies, key=lambda cookie: len(cookie.path)).value if cookies else ""


class Kernel:
    """A kernel of a visitor's, and the websocket to it."""

    def __init__(self, visitor, id):
        self.id = id
        host = urlsplit(visitor.url).netloc
        address = f"ws://{host}/user/{visitor.name}/api/kernels/{id}/channels"
        self.socket = websocket.create_connection(
            address, timeout=PATIENCE_S, cookie=visitor.cookies(), origin=visitor.url
        )

    def send(self, code):
        """Send a cell, and return the id by which what comes of it is known."""
        id = uuid.uuid4().hex
        header = {
            "msg_id": id,
            "msg_type": "execute_request",
            "username": "",
            "session": id,
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        self.socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return id

    def run(self, code):
        """Run a cell and return all the text that it shows, errors included."""
        id, shown, awaited = self.send(code), [], {"execute_reply", "idle"}
        for message in self.messages():
            if message["parent_header"].get("msg_id") != id:
                continue
            content = message["content"]
            # The reply and what is shown come by different ways, in either order.
            awaited -= {message["msg_type"], content.get("execution_state")}
            if not awaited:
                return "".join(shown)
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] == "error":
                shown.append(f"{content['ename']}: {content['evalue']}\n")
            elif message["msg_type"] in ("execute_result", "display_data"):
                shown.append(content["data"].get("text/plain", ""))
        raise AssertionError("the kernel's websocket was closed")

    def messages(self):
        while text := self.socket.recv():
            yield json.loads(text)
