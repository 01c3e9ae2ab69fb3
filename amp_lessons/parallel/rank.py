"""The work of a rank: settle where the function was written, join the others, call it, report.

It runs in a worker, which stays until it is ended: a rank that left would break the others' collectives.
"""

from __future__ import annotations

import linecache
import os
import pickle
import random
import sys
import tempfile
import traceback
from datetime import timedelta
from typing import Any

import cloudpickle
import torch
import torch.distributed as dist

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_FOR_EVER = timedelta(days=2)  # the limit of whoever waits for ranks comes first
_store: list[dist.FileStore] = []


def warm_up() -> None:
    """Import what training on several ranks needs: each rank would take seconds for it, on its own."""
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first one imports torch._dynamo


def settle(here: dict[str, Any], threads: int) -> None:
    """Take over the surroundings in which a function was written."""
    os.environ.clear()
    os.environ.update(here["environment"])
    os.chdir(here["folder"])
    sys.path[:], sys.argv[:] = here["path"], here["arguments"]
    for name, text in here["cells"].items():
        linecache.cache[name] = len(text), None, text.splitlines(True), name
    random.seed()  # else all ranks of all runs would draw what the host would have drawn
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    torch.set_num_threads(threads)


def enter(rank: int, world_size: int, meet_at: str) -> str:
    """Become a rank: set the variables that torchrun would set; return the path of the file to meet at.

    On Linux nobody has to remove it: it is in the memory of rank 0, the first to enter; elsewhere a few bytes
    stay in the temporary folder. A ``TCPStore`` would ask a name server who each of its clients is, and wait
    for seconds where none answers.
    """
    os.environ.update(RANK=f"{rank}", LOCAL_RANK=f"{rank}")
    os.environ.update(WORLD_SIZE=f"{world_size}", LOCAL_WORLD_SIZE=f"{world_size}")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # no name server, no firewall in the way
    if not meet_at and hasattr(os, "memfd_create"):
        meet_at = f"/proc/{os.getpid()}/fd/{os.memfd_create('ranks')}"
    meet_at = meet_at or tempfile.mkstemp(prefix="amp-lessons-ranks-")[1]
    _store.append(dist.FileStore(meet_at, world_size))
    return meet_at


def join() -> None:
    """Join the others, once all have entered."""
    rank, world_size, store = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), _store[0]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=_FOR_EVER)
    store.set(f"joined{rank}", "")
    store.wait([f"joined{each}" for each in range(world_size)])  # who left earlier would keep others out


def be(payload: bytes) -> dict[str, Any]:
    """Join the others and call the function; return its result, pickled, or what went wrong."""
    try:
        fn, args = pickle.loads(payload)
        join()
        result = fn(*args)
    except BaseException as error:
        return {"raised": _describe(error)}
    try:
        return {"returned": cloudpickle.dumps(result)}
    except BaseException as error:
        why = _describe(error).removeprefix("raised ")
        return {"raised": f"returned a {type(result).__name__}, which cannot be pickled: {why}"}


def _describe(error: BaseException) -> str:
    """Return what was raised in a line, then its traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    name = type(error).__name__
    try:
        lines = "".join(traceback.format_exception(type(error), error, trace))
        first = str(error).strip().partition("\n")[0]
    except BaseException:  # one of the author's own, which cannot put itself into words
        return f"raised {name}\n"
    return f"raised {name}{': ' * bool(first)}{first}\n{lines}"
