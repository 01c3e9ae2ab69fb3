"""``python -m classroom.jupyterhub``: a hub for a class on this machine; with ``--demo 3`` for trying."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from classroom.jupyterhub import children, preflight, reachable, serving
from classroom.jupyterhub.authenticators import THIS_MACHINE
from classroom.jupyterhub.state import Folder

HERE = Path(__file__).parent
STATE = Path("/var/lib/amp-classroom")


def parser() -> argparse.ArgumentParser:
    """Return the options."""
    found = argparse.ArgumentParser(prog="python -m classroom.jupyterhub", description=__doc__)
    found.add_argument("--demo", type=int, metavar="N", help="N made-up learners and a teacher, for trying")
    found.add_argument(
        "--bind", default="127.0.0.1", help="the address to answer at (default: this machine alone)"
    )
    found.add_argument("--port", type=int, help="the port (default: 8000; with --demo, a free one)")
    found.add_argument(
        "--state", type=Path, help=f"what the hub keeps (default: {STATE}; with --demo, nothing)"
    )
    found.add_argument("--memory", type=int, metavar="MIB", help="what a made-up learner may use")
    found.add_argument("--cgroup", default="", help="a control group below which learners' may be made")
    found.add_argument(
        "--add", type=Path, action="append", default=[], help="a JupyterHub config file of yours"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal; 1 with a sentence where this machine cannot do it."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (preflight.CannotServeError, children.EndedError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    preflight.refuse(options.demo, options.bind in THIS_MACHINE)
    if os.geteuid() == 0:
        preflight.open_the_way(reachable.needed())
    with ExitStack() as stack:
        folder = Folder(_state(options, stack))
        folder.make()
        ports = folder.ports(options.port or (None if options.demo else 8000))
        people = folder.people(options.demo, options.memory) if options.demo else None
        config = HERE / ("demo_config.py" if people else "jupyterhub_config.py")
        add = os.pathsep.join(str(path.absolute()) for path in options.add)
        own = serving.processes(folder, ports, config, options.bind, options.cgroup, add)
        address = f"http://{options.bind}:{ports.public}"
        for sentence in preflight.sentences(options, address, people, folder.hub):
            print(sentence, flush=True)
        passwords = people["passwords"] if people else {}
        serving.serve(folder, ports, own, {"url": address, "passwords": passwords})
    return 0


def _state(options: argparse.Namespace, stack: ExitStack) -> Path:
    if options.state or not options.demo:
        return (options.state or STATE).absolute()
    # A short path: sockets of kernels, whose paths may have 107 bytes, lie below it.
    temporary = tempfile.mkdtemp(prefix="amp-hub-", dir="/tmp")
    stack.callback(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


if __name__ == "__main__":
    sys.exit(main())
