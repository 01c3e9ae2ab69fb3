"""Who may come in, while trying: made-up people with made-up passwords, on this machine and nowhere else."""

from __future__ import annotations

import hmac
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.auth import Authenticator, DummyAuthenticator
from traitlets import Dict, Unicode

THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def refuse_other_machines(authenticator: Authenticator) -> None:
    """Raise ValueError where a hub that lets made-up people in could be reached from another machine."""
    host = urlsplit(authenticator.parent.bind_url).hostname or "*"
    if host not in THIS_MACHINE:
        raise ValueError(
            f"made-up people may come in from this machine alone, and {host} lets others reach the hub. "
            "Bind to 127.0.0.1, or choose an authenticator for real use (classroom/jupyterhub/README.md)"
        )


class DemoAuthenticator(Authenticator):
    """Lets in those who are named, each with a password of their own."""

    passwords = Dict(Unicode(), config=True, help="By name.")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        refuse_other_machines(self)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> str | None:
        """Return the name if the password is right."""
        name = data.get("username", "")
        known, given = self.passwords.get(name, ""), data.get("password", "")
        return name if known and hmac.compare_digest(known.encode(), given.encode()) else None


class LocalDummyAuthenticator(DummyAuthenticator):
    """JupyterHub's own dummy, which lets anybody in, refused beyond this machine."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        refuse_other_machines(self)
