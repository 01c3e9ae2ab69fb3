"""What Jupyter asks for kernels: ``JUPYTER_DEFAULT_PROVISIONER_NAME=amp-lessons-forked``."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning import LocalProvisioner

from amp_lessons.kernels import request
from amp_lessons.kernels.own_parent import OwnParent
from amp_lessons.kernels.process import ForkedProcess, RefusedError

_LAUNCHER = ["-m", "ipykernel_launcher"]
_FOR_ALL = "AMP_LESSONS_KERNELS"
_GPUS = ("/dev/nvidiactl", "/dev/kfd")
_TIMEOUT_S = 60.0


class ForkedKernelProvisioner(LocalProvisioner):
    """Has a Python kernel forked from one that has imported the course; starts any other as it always was."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Have the kernel forked, or launch it."""
        try:
            asked = _request(cmd, kwargs)
            forked = await asyncio.to_thread(_forked, asked)
        except (RefusedError, OSError, ValueError) as error:
            self.log.warning("This kernel starts by itself and is not forked: %s.", error)
            return await super().launch_kernel(cmd, **kwargs)
        self.process = cast("subprocess.Popen[bytes]", forked)  # as far as the base class asks
        self.pid = self.pgid = forked.pid
        return self.connection_info


def _request(cmd: list[str], kwargs: dict[str, Any]) -> request.Request:
    """Turn what Jupyter would run into a request. Raises RefusedError where it is no kernel to be forked."""
    if sys.platform != "linux":
        raise RefusedError("PyTorch survives a fork on Linux alone")
    if any(os.path.exists(gpu) for gpu in _GPUS):
        raise RefusedError("this machine has a GPU, and that was not tried")
    if cmd[1:3] != _LAUNCHER:
        raise RefusedError("it is no kernel of ipykernel")
    environment = dict(kwargs.get("env") or os.environ)
    return request.Request(cmd[0], cmd[3:], environment, str(Path(kwargs.get("cwd") or ".").absolute()))


def _forked(asked: request.Request) -> ForkedProcess:
    """Ask the parent that there is for all, or one of our own. Raises RefusedError or OSError."""
    connection = _connected()
    streams = request.own_streams()
    try:
        request.send(connection, asked, streams)
        return ForkedProcess(connection, _TIMEOUT_S)
    except OSError:
        connection.close()
        raise
    finally:
        os.close(streams[0])


def _connected() -> socket.socket:
    path = os.environ.get(_FOR_ALL)
    if not path:
        return OwnParent.instance().connected()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        if request.peer_of(connection).user not in (0, os.getuid()):
            raise RefusedError(f"{path} belongs neither to root nor to this account")
    except BaseException:
        connection.close()
        raise
    return connection
