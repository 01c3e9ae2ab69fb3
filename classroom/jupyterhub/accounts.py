"""Under which account of this machine a learner's server runs, and where that account's home is."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """One account: ``own`` says that nobody but this learner runs anything under it."""

    name: str
    uid: int
    gid: int
    home: Path
    groups: tuple[int, ...] = ()
    own: bool = True

    def make_home(self) -> None:
        """Make the home if it is not there, and close it to everybody else, whatever it was before."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        if not self.own:
            self.home.chmod(0o700)
            return
        # Not by name: where its owner has put a link, what that points to must stay as it is.
        handle = os.open(self.home, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchown(handle, self.uid, self.gid)
            os.fchmod(handle, 0o700)
        finally:
            os.close(handle)

    def become(self) -> None:
        """Give up this process's account for this one, for good, and go home."""
        if self.own:
            os.setgroups(self.groups)
            os.setgid(self.gid)
            os.setuid(self.uid)
        os.chdir(self.home)


def of_this_machine(name: str) -> Account:
    """Return the account that this machine knows by a name. Raises KeyError where there is none."""
    entry = pwd.getpwnam(name)
    if entry.pw_uid == 0:
        raise KeyError(f"{name} is root, and a notebook that runs as root can read every learner's work")
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    return Account(name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir), groups)


def groups_there(*names: str) -> set[str]:
    """Return those of some groups that this machine has; PAM's login fails for all where one is missing."""
    return set(names) & {entry.gr_name for entry in grp.getgrall()}


def made_up(names: Sequence[str], homes: Path, first_uid: int) -> Callable[[str], Account]:
    """Return accounts for people whom this machine does not know: numbers without a name, homes in a folder.

    Only root can give processes another account. Without it all run under the one that starts them, which
    ``own`` says: then nothing but good manners keeps one learner from another's files.
    """
    root = os.geteuid() == 0

    def account(name: str) -> Account:
        number = first_uid + list(names).index(name)
        uid, gid = (number, number) if root else (os.getuid(), os.getgid())
        return Account(name, uid, gid, homes / name, own=root)

    return account
