"""A Jupyter server of our own, for simulated learners: on this machine alone, gone when it is left."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

from tools.ports import free_port

ROOT = Path(__file__).parents[2]
PROVISIONER = "amp-lessons-forked"
_GROUP = "jupyter_client.kernel_provisioners"
_CLASS = "amp_lessons.kernels.provisioner:ForkedKernelProvisioner"
_START_TIMEOUT_S = 120
_END_TIMEOUT_S = 30
_ENDS_WITH_US = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()
from jupyter_server.serverapp import main
main()
"""


class Server:
    """A server on ``folder``, with kernels that are ``forked`` or start as usual; use it in ``with``."""

    def __init__(self, folder: Path, *, forked: bool) -> None:
        self.token = secrets.token_hex(16)
        self._folder, self._forked, self._stack = folder, forked, ExitStack()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> Server:
        private = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="classroom-load-")))
        self._log = private / "server.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _ENDS_WITH_US, *self._options()],
                stdin=subprocess.PIPE,  # closed when this process ends, however: then the server does too
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(private),
                start_new_session=True,
            )
        try:
            self._wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stack.close()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def said(self, word: str) -> list[str]:
        """List the lines of its log that have this word."""
        return [line for line in self._log.read_text(errors="replace").splitlines() if word in line]

    def _options(self) -> list[str]:
        return [
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={self._port}",
            "--ServerApp.port_retries=0",
            f"--ServerApp.root_dir={self._folder}",
            f"--IdentityProvider.token={self.token}",
        ]

    def _environment(self, private: Path) -> dict[str, str]:
        names = (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
            "AMP_LESSONS_HOME",
        )
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        if self._forked and not entry_points(group=_GROUP, name=PROVISIONER):
            paths.append(str(_announced(private)))  # in a checkout that was installed before it had one
        return {
            **os.environ,
            **{name: str(private / name.lower()) for name in names},
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "JUPYTER_DEFAULT_PROVISIONER_NAME": PROVISIONER if self._forked else "local-provisioner",
        }

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/api/status?token={self.token}", timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.1)
        raise RuntimeError(f"no server came up; it said:\n{self._log.read_text(errors='replace')[-2000:]}")


def _announced(private: Path) -> Path:
    """Write the entry point that an installation would have written; return the folder to be searched."""
    folder = private / "announced"
    info = folder / "amp_lessons_forked-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: amp-lessons-forked\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{_GROUP}]\n{PROVISIONER} = {_CLASS}\n")
    return folder
