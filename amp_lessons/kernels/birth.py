"""What a fork of the parent does: become its asker's, read what is asked for, and be that kernel."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from amp_lessons.kernels import account, request
from amp_lessons.kernels.warm import SET_HERE

_REQUEST_TIMEOUT_S = 10.0
_NEVER_BORN = 70
_WATCHES_NO_PARENT = "--IPKernelApp.parent_handle=1"  # or it would end with the process that forked it

# Read by Python, by libraries or by the course while they load, which the parent did long ago.
_READ_ON_LOADING = (
    "PYTHON", "LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_",
    "TORCH", "PYTORCH_", "ATEN_", "DNNL_", "ONEDNN_", "CUDA_", "HF_", "TRANSFORMERS_", "HUGGINGFACE_", "MPL",
)  # fmt: skip
_HARMLESS = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")  # a fork may go without


def become_kernel(
    connection: socket.socket, keep: frozenset[int], environment: Mapping[str, str], *, everybodys: bool
) -> None:
    """Be a kernel until it ends. ``keep`` stays open, ``environment`` is the parent's at its start.

    Where this cannot be, the asker hears why, and the process ends.
    """
    try:
        os.setsid()
        _close_all_but({connection.fileno(), *keep})
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if everybodys:
            account.take_over(request.peer_of(connection))
            _refuse_unreadable_python()
        connection.settimeout(_REQUEST_TIMEOUT_S)
        asked, streams = request.receive(connection)
        _refuse_another_beginning(asked, environment)
        _take_surroundings(asked, streams)
    except (account.NotEqualError, OSError, ValueError, TypeError) as error:
        request.tell(connection, refused=f"{error}")
        os._exit(_NEVER_BORN)
    _draw_other_random_numbers()
    request.tell(connection, pid=os.getpid())
    connection.settimeout(None)
    threading.Thread(target=_end_with_the_server, args=(connection,), daemon=True).start()
    _run(asked.arguments)


def _refuse_unreadable_python() -> None:
    """Refuse to be a kernel whose next import fails: root's Python may lie where others cannot go."""
    if not os.access(sys.executable, os.X_OK) or not os.access(os.__file__, os.R_OK):
        raise ValueError(f"this account may not read {sys.executable}, or what it imports")


def _close_all_but(kept: set[int]) -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):  # the list of them was one of them
                os.close(descriptor)


def _refuse_another_beginning(asked: request.Request, environment: Mapping[str, str]) -> None:
    """Refuse what would have made another process of the parent; nobody asks for what it sets."""
    if asked.python != sys.executable:
        raise ValueError(f"it asks for {asked.python}, and this is {sys.executable}")
    for name in sorted({*asked.environment, *environment}):
        wanted, have = asked.environment.get(name), environment.get(name)
        set_here = wanted is None and name in SET_HERE
        if name.startswith(_READ_ON_LOADING) and name not in _HARMLESS and wanted != have and not set_here:
            raise ValueError(f"it wants {name} to be {wanted}, which is {have} in kernels that are forked")


def _take_surroundings(asked: request.Request, streams: list[int]) -> None:
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.environ.pop("JPY_PARENT_PID", None)
    os.chdir(asked.folder)
    time.tzset()
    tempfile.tempdir = None


def _draw_other_random_numbers() -> None:
    """Seed what is seeded once per process; Python's ``random`` is, at each fork, by itself."""
    multiprocessing.current_process().authkey = os.urandom(32)
    random.seed()
    for module in ("numpy.random", "torch"):
        if module in sys.modules:
            importlib.import_module(module).seed()


def _end_with_the_server(connection: socket.socket) -> None:
    """End when the other end of the connection is closed, as a child of the server would."""
    with suppress(OSError):
        while connection.recv(1):
            pass
    os._exit(1)


def _run(arguments: list[str]) -> NoReturn:
    from ipykernel import kernelapp

    sys.argv = ["ipykernel_launcher", *arguments]
    kernelapp.launch_new_instance(argv=[*arguments, _WATCHES_NO_PARENT])
    sys.exit(0)
