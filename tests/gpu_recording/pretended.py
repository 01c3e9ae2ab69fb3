"""A step on no device, whose parts do what their names say, and a ``make gpu`` that runs it.

Each part that is run adds a line to the file ``PRETENDED_RUNS``: its name and its process.
``PRETENDED_PARTS`` names the parts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tools.gpu import command
from tools.gpu.conductor import Step
from tools.gpu.found import Agreement, Figure, Found, NotPossibleError, Place
from tools.gpu.recording import Setup

SETUP = Setup(
    device="Pretended 1",
    device_type="cpu",
    capability="9.0",
    driver="1.2",
    torch="2.11.0+cu130",
    cuda="13.0",
    cudnn="91000",
    python="3.12.3",
    transformers="5.0",
    course="0.1.0",
    cpu="Some CPU",
    threads=16,
)
MODULE = "tests.gpu_recording.pretended"
STEPS = (
    Step("first", MODULE, "The first", 0.0, 20.0),
    Step("second", f"{MODULE}_second", "The second", 0.0, 20.0),
)


def parts(place: Place) -> tuple[str, ...]:
    names = os.environ["PRETENDED_PARTS"]
    if names == "crash":
        os._exit(3)
    if names == "lacking":
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")
    return tuple(names.split())


def run(name: str, place: Place) -> Found:
    with Path(os.environ["PRETENDED_RUNS"]).open("a") as runs:
        runs.write(f"{name} {os.getpid()}\n")
    kind = name.partition("-")[0]
    return {**KINDS}[kind](name)


def good(name: str) -> Found:
    print("what a step prints is not an answer")
    return Found(
        (Figure("a figure", 3.5, "ms"),), (Agreement(f"{name} claim", 100, 95, "why", 0.1, "bytes"),)
    )


def disagrees(name: str) -> Found:
    return Found(
        agreements=(Agreement(f"{name} claim", 100, 50, "why", 0.1), Agreement("word", "a", "a", "why"))
    )


def crash(name: str) -> Found:
    print("last words", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def hang(name: str) -> Found:
    time.sleep(600)
    raise AssertionError


def raises(name: str) -> Found:
    raise ValueError("something\nwent wrong")


def lacking(name: str) -> Found:
    raise NotPossibleError("this Python lacks nowhere")


def nothing(name: str) -> Found:
    return None


def mistyped(name: str) -> Found:
    return Found((Figure("a figure", None),))


def mute(name: str) -> Found:
    os.close(_answers())
    time.sleep(600)
    raise AssertionError


def garbage(name: str) -> Found:
    os.write(_answers(), b"no JSON\n")
    return Found()


def _answers() -> int:
    return next(fd for fd in range(3, 64) if _is_pipe(fd))


def _is_pipe(descriptor: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("pipe:")
    except OSError:
        return False


KINDS = {
    each.__name__: each
    for each in (good, disagrees, crash, hang, raises, lacking, nothing, mistyped, mute, garbage)
}


def main(argv: list[str]) -> int:
    return command.main(argv, steps=STEPS, ask_setup=lambda device: SETUP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
