"""What the hub keeps between two starts: one folder, of which learners can reach their homes alone."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.ports import free_ports

_FIRST_UIDS = range(1_000_000, 2_000_000_000, 1000)  # beyond those that systems give to people and services


@dataclass(frozen=True)
class Ports:
    """Where the proxy answers, where the hub, and where the proxy takes the hub's orders."""

    public: int
    hub: int
    proxy_api: int


@dataclass(frozen=True)
class Folder:
    """The folder: ``hub`` is root's alone, ``homes`` has the made-up learners', ``notes`` a line for each."""

    path: Path
    hub: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hub", self.path / "hub")

    @property
    def kernels(self) -> Path:
        """The socket at which kernels can be asked for: others may come to it, and put nothing beside it."""
        return self.path / "kernels" / "socket"

    def make(self) -> None:
        """Make it; others can pass through, to what is theirs, and list nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name, mode in (
            ("", 0o711),
            ("hub", 0o700),
            ("homes", 0o711),
            ("notes", 0o711),
            ("kernels", 0o711),
        ):
            folder = self.path / name
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)

    def ports(self, public: int | None) -> Ports:
        """Return the ports, the same in every start: a server that lives on knows the hub by its port."""
        kept = self._kept("ports.json", lambda: asdict(Ports(*free_ports(3))))
        return Ports(**(kept | ({"public": public} if public else {})))

    def people(self, learners: int, memory_mib: int | None) -> dict[str, Any]:
        """Return the made-up people with their passwords, and the first of their account numbers."""
        names = [*(f"learner{number}" for number in range(1, learners + 1)), "teacher"]
        kept = self._kept("people.json", lambda: {"first_uid": secrets.choice(_FIRST_UIDS), "passwords": {}})
        for name in names:
            kept["passwords"].setdefault(name, secrets.token_urlsafe(6))
        kept["memory_mib"] = memory_mib
        self.write("people.json", kept)
        return kept

    def proxy_token(self) -> str:
        """Return what the hub shows to the proxy."""
        return str(self._kept("proxy_token.json", lambda: secrets.token_hex(32)))

    def write(self, name: str, content: Any) -> None:
        """Write a file of the hub's, whole."""
        unfinished = self.hub / f"{name}.tmp"
        unfinished.touch(0o600)
        unfinished.write_text(json.dumps(content, indent=1), "utf-8")
        unfinished.replace(self.hub / name)

    def _kept(self, name: str, make: Any) -> Any:
        if not (self.hub / name).exists():
            self.write(name, make())
        return json.loads((self.hub / name).read_text("utf-8"))
