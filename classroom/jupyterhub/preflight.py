"""What this machine can do for a class and what it cannot, said before the hub starts."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from classroom import sizes
from classroom.jupyterhub import accounts, cgroups, proxy, reachable

INSTALL = "pip install -e '.[classroom]' -c constraints.txt"


class CannotServeError(Exception):
    """The hub cannot be started here; the message says why, and what would help."""


def refuse(demo: int | None, this_machine_alone: bool) -> None:
    """Raise CannotServeError for what cannot work, or must not be served."""
    missing = [
        name for name in ("jupyterhub", "configurable_http_proxy") if not importlib.util.find_spec(name)
    ]
    if missing:
        raise CannotServeError(f"{' and '.join(missing)}: not installed for this Python. Install: {INSTALL}")
    if demo is not None and not this_machine_alone:
        raise CannotServeError(
            "--demo lets made-up people in, and answers on 127.0.0.1 alone. To try it from elsewhere, use an "
            "ssh tunnel; for a class, leave --demo out: people then log in with accounts of this machine."
        )
    if demo is not None and demo < 1:
        raise CannotServeError("--demo takes the number of made-up learners, 1 or more.")
    if demo is None and os.geteuid() != 0:
        raise CannotServeError(
            "Only root can start each learner's server under the learner's own account; without that they "
            "could read each other's work. Start it with sudo, or see sudospawner in "
            "classroom/jupyterhub/README.md. To try it without root: --demo 3."
        )


def open_the_way(needed: Iterable[Path]) -> None:
    """Let learners' processes reach Python and the course where a folder above them is closed to them."""
    closed = reachable.closed(needed)
    if not closed:
        return
    folders = " and ".join(map(str, closed))
    if reachable.INSIDE not in os.environ:
        print(
            f"{folders} is closed to learners, and Python or the course lies in it. They see these there, "
            "and nothing else of that folder: the hub runs in a mount namespace of its own.",
            flush=True,
        )
        try:
            subprocess.run(["unshare", "--mount", "true"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotServeError(
                f"This machine does not allow that ({error}). Install Python and the course where everybody "
                "may read, /opt say, and start again."
            ) from error
        reachable.enter_namespace()
    for folder, wanted in closed.items():
        reachable.uncover(folder, wanted)


def sentences(
    options: argparse.Namespace, address: str, people: Mapping[str, Any] | None, logs: Path
) -> list[str]:
    """Say where the hub answers, who may come in, and what keeps learners apart here."""
    said = [f"The hub answers at {address} in a few seconds. Its log: {logs / 'hub.log'}. Ctrl-C ends it."]
    if people:
        said.append("Made-up people and their passwords, for this machine alone:")
        said += [f"  {name}  {password}" for name, password in people["passwords"].items()]
        if not options.state:
            said.append("Nothing of this trial is kept: --state FOLDER would.")
    else:
        said += _who_is_missing()
    said.append(_kept_apart())
    said.append(_limited(options.cgroup))
    said.append(f"Before them stands {proxy.command()[1]}.")
    memory = psutil.virtual_memory().total / 2**20
    said.append(
        f"This machine has {memory / 1024:.0f} GiB: {sizes.learners(memory, sizes.EVERYDAY)} learners "
        f"at once in the hungriest everyday lesson, {sizes.learners(memory, ['03'])} in lesson 03 (computed "
        "from classroom/sizes.json)."
    )
    return said


def _who_is_missing() -> list[str]:
    there = accounts.groups_there("learners", "teachers")
    return [
        f"This machine has no group {name}: {lost}. `groupadd {name}`, then start this again. (Where you "
        "have chosen another authenticator than PAM, that is as it should be.)"
        for name, lost in (("learners", "no learner can log in"), ("teachers", "nobody administrates"))
        if name not in there
    ]


def _kept_apart() -> str:
    if os.geteuid() == 0:
        return "Every learner has an account and a home of their own: nobody reads another's work."
    return (
        "You are not root: all learners run under your own account, and could read each other's files and "
        "yours. That is for trying alone."
    )


def _limited(named: str) -> str:
    place = cgroups.place(named) if os.geteuid() == 0 else None
    if place:
        what = ", ".join(place.folders)
        return f"Limits of each learner: control groups (version {place.version}) for {what}."
    return (
        "Limits: memory for each process (RLIMIT_DATA) and, every two seconds, for all of a learner's "
        "together. No control group has been delegated to the hub, so processor time is shared out fairly "
        "and not limited; the README says how to give it one."
    )
