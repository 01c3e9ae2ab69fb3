"""Starts a learner's server on this machine: under the learner's own account, apart from others, in limits.

Where systemd runs, ``systemdspawner`` does the same by systemd's means and is the better choice; this one
is for machines without it (containers, rented ones), and for trying.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyterhub.spawner import LocalProcessSpawner
from tornado.ioloop import PeriodicCallback
from traitlets import Callable as CallableTrait
from traitlets import Float, Integer, Unicode

from classroom.jupyterhub import accounts, cgroups, watch
from classroom.jupyterhub.limits import MIB, Limits

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
LAB_SETTINGS = CHECKOUT / "amp_lessons" / "commands" / "lab" / "jupyter_config"
LESSONS = "my_lessons"
_LONGEST_SOCKET = 107  # bytes in the path of a Unix socket
FORKED = "amp-lessons-forked"  # see amp_lessons/kernels
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_place = functools.cache(cgroups.place)  # to find it is also to prepare it


class LearnerSpawner(LocalProcessSpawner):
    """A learner's server. ``mem_limit`` and ``cpu_limit``, which other local spawners ignore, hold here."""

    account_of = CallableTrait(accounts.of_this_machine, config=True, help="From a name to an Account.")
    cgroup = Unicode("", config=True, help="A control group to use, such as 'classroom'. See cgroups.py.")
    tasks_limit = Integer(512, config=True, help="Processes and threads that a learner may have.")
    watch_every_s = Float(2.0, config=True, help="How often memory is added up where no control group does.")
    notes = Unicode("", config=True, help="Where learners are told what became of their kernels.")
    kernels = Unicode("", config=True, help="The socket at which kernels are forked, if they are.")

    _watching: PeriodicCallback | None = None
    _told_kills = 0

    @property
    def account(self) -> accounts.Account:
        """The account that the server runs under. Raises KeyError where there is none."""
        return self.account_of(self.user.name)

    @property
    def group(self) -> cgroups.Group | None:
        """The learner's control group, if this machine has a place for it."""
        place = _place(self.cgroup)
        return place.group(f"learner-{self.account.name}") if place and self.account.own else None

    async def start(self) -> tuple[str, int]:
        """Make home and group, then start the server as any local one."""
        self.account.make_home()
        if group := self.group:
            group.make(self.mem_limit, self.cpu_limit, self.tasks_limit)
        self._make_note()
        address = await super().start()
        self._watch()
        return address

    async def poll(self) -> int | None:
        """Ask whether the server runs; one that a new hub has found running is watched from now on."""
        status: int | None = await super().poll()
        if status is None:
            self._watch()
        return status

    async def stop(self, now: bool = False) -> None:
        """Stop the server, and whatever it has left running in its group."""
        self._unwatch()
        await super().stop(now)
        if group := self.group:
            group.remove()

    def make_preexec_fn(self, name: str) -> Callable[[], None]:
        """Return what the new process does before it becomes the server; all is prepared before the fork."""
        account, group = self.account, self.group
        # Threads of one account count together: of an account that is somebody's own, theirs alone.
        limits = Limits(self.mem_limit or None, tasks=self.tasks_limit if account.own else None)

        def become_the_learner() -> None:
            if group:
                group.enter()
            limits.apply()
            os.umask(0o077)
            account.become()

        return become_the_learner

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """Say who and where the learner is; progress and Jupyter's files are kept in their home."""
        home = self.account.home
        env |= {"USER": self.user.name, "LOGNAME": self.user.name, "HOME": str(home), "SHELL": "/bin/bash"}
        env |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
            "AMP_LESSONS_HOME": str(home / ".local" / "share" / "amp-lessons"),
            "JUPYTER_RUNTIME_DIR": str(home / ".run"),
            "JUPYTER_CONFIG_PATH": str(LAB_SETTINGS),
            "PYTHONPATH": str(CHECKOUT),
            "AMP_CLASSROOM_NOTE": str(self._note() or ""),
        }
        if self.kernels:
            env |= {"AMP_LESSONS_KERNELS": self.kernels, "JUPYTER_DEFAULT_PROVISIONER_NAME": FORKED}
        return env | dict.fromkeys(_ONE_THREAD, "1")

    def get_args(self) -> list[str]:
        """Let kernels talk through sockets in the learner's home: ports could be listened to by everybody."""
        longest = self.account.home / ".run" / f"kernel-{'0' * 36}-ipc-5"
        if len(str(longest)) > _LONGEST_SOCKET:
            raise ValueError(
                f"{self.account.home} is too long a path for kernels' sockets; use a shorter one"
            )
        return [*super().get_args(), "--KernelManager.transport=ipc"]

    def _watch(self) -> None:
        if self._watching is None:
            self._told_kills = self.group.killed_for_memory() if self.group else 0
            self._watching = PeriodicCallback(self._look, self.watch_every_s * 1000)
            self._watching.start()

    def _unwatch(self) -> None:
        if self._watching is not None:
            self._watching.stop()
            self._watching = None

    def _look(self) -> None:
        """See what became of the learner's processes, and tell the learner if any was ended for memory."""
        if not self.pid:
            self._unwatch()
            return
        group = self.group
        if group and "memory" in group.folders:
            kills = group.killed_for_memory()
            ended, self._told_kills = kills - self._told_kills, kills
        else:
            ended = self._end_what_is_too_much()
        if ended > 0:
            self.log.warning("%s: %d processes ended, for memory", self.user.name, ended)
            self._tell(f"It needed more memory than the {(self.mem_limit or 0) // MIB} MiB you may use.")

    def _end_what_is_too_much(self) -> int:
        if not self.mem_limit:
            return 0
        account = self.account
        mine = watch.processes_of(account.uid) if account.own else watch.processes_below(self.pid)
        return watch.end_the_largest(mine, self.mem_limit, spare=self.pid)

    def _note(self) -> Path | None:
        return Path(self.notes) / self.account.name if self.notes else None

    def _make_note(self) -> None:
        """Make an empty note that only this learner can read, in a folder where learners cannot write."""
        if note := self._note():
            note.unlink(missing_ok=True)
            note.touch(0o600)
            os.chown(note, self.account.uid, self.account.gid)

    def _tell(self, sentence: str) -> None:
        if note := self._note():
            note.write_text(sentence, encoding="utf-8")


def command() -> list[Any]:
    """Return what starts a learner's server: the lessons are brought, then the server takes over."""
    return ["/bin/sh", str(HERE / "begin.sh"), sys.executable, LESSONS]
