"""A fork of root's parent becomes the equal of its asker, or no kernel at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="accounts, control groups and /proc are Linux's"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone changes accounts"),
]

ACCOUNT, GROUPS = 65534, "65532,65533"
LASTING = ("Umask", "Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Cpus_allowed")

# What a fork of the parent does, without the fork: it says what has become of it, or why nothing has.
TAKE_OVER = """
import json, os, sys
from pathlib import Path
from amp_lessons.kernels import account, request
try:
    account.take_over(request.Peer(*map(int, sys.argv[1:4])))
except account.NotEqualError as error:
    print(json.dumps({"refused": str(error)}))
else:
    def root_again():
        try:
            os.setuid(0)
        except PermissionError:
            return False
        return True
    # each of these belongs to root, and is open to none, where a process may not look at itself
    own = os.access("/proc/self/fd", os.R_OK) and bool(Path("/proc/self/environ").read_bytes())
    names = ("status", "limits", "cgroup", "oom_score_adj")
    files = {name: Path("/proc/self", name).read_text() for name in names}
    print(json.dumps({**files, "root again": root_again(), "own": own, "nice": os.getpriority(0, 0)}))
"""


def limited():
    os.umask(0o27)
    os.nice(3)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
    resource.setrlimit(resource.RLIMIT_AS, (2**33, 2**34))
    Path("/proc/self/oom_score_adj").write_text("321")


AS_ACCOUNT = ["setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", f"--groups={GROUPS}"]


@contextmanager
def asker(*options: str, before: tuple[str, ...] = (), limits=limited) -> Iterator[int]:
    """Run what could have asked, under another account; ``options`` are of setpriv, ``before`` starts it."""
    command = [*before, *AS_ACCOUNT, *options, "sh", "-c", "echo here; exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=limits) as process:
        try:
            assert process.stdout.readline() == b"here\n"
            yield process.pid
        finally:
            process.kill()


def taken_over(pid: int, user: int = ACCOUNT, group: int = ACCOUNT) -> dict:
    command = [sys.executable, "-c", TAKE_OVER, str(pid), str(user), str(group)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def lasting(status: str) -> dict[str, str]:
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {name: fields[name].strip() for name in LASTING}


def test_a_fork_has_what_its_asker_has_and_cannot_be_root_again():
    with asker() as pid:
        fork = taken_over(pid)
        asked = {name: Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "limits", "cgroup")}
    assert "refused" not in fork
    assert lasting(fork["status"]) == lasting(asked["status"])
    assert lasting(fork["status"])["Uid"].split() == [str(ACCOUNT)] * 4
    assert fork["limits"] == asked["limits"]
    assert "333" in fork["limits"]
    assert fork["cgroup"] == asked["cgroup"]
    assert fork["oom_score_adj"].strip() == "321"
    assert fork["nice"] == os.getpriority(os.PRIO_PROCESS, 0) + 3
    assert fork["own"] is True
    assert fork["root again"] is False


def test_a_fork_joins_the_control_groups_of_its_asker():
    group = Path(f"/sys/fs/cgroup/pids/amp-lessons-test-{os.getpid()}")
    if not group.parent.is_dir():
        group = Path("/sys/fs/cgroup") / group.name
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        with asker() as pid:
            (group / "cgroup.procs").write_text(str(pid))
            assert f"/{group.name}\n" in taken_over(pid)["cgroup"]
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    import time

    for _ in range(200):  # what was in it has ended, and may not be reaped
        try:
            return group.rmdir()
        except OSError:
            time.sleep(0.02)
    return None


def test_no_new_privileges_are_no_fork_s_either():
    with asker("--no-new-privs") as pid:
        assert "NoNewPrivs:\t1" in taken_over(pid)["status"]


@pytest.mark.parametrize("namespace", ["net", "mount", "uts", "ipc"])
def test_an_asker_in_a_namespace_of_its_own_gets_no_fork(namespace):
    command = (shutil.which("unshare"), f"--{namespace}")
    tried = subprocess.run([*command, "true"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"no namespaces here: {tried.stderr!r}")
    with asker(before=command, limits=None) as pid:
        assert "namespace of its own" in taken_over(pid)["refused"]


def test_who_has_gone_or_is_somebody_else_gets_no_fork():
    with asker() as pid:
        assert "account" in taken_over(pid, user=ACCOUNT - 1)["refused"]
        assert "account" in taken_over(pid, group=ACCOUNT - 1)["refused"]
    assert "has gone" in taken_over(pid)["refused"]


def test_an_asker_with_capabilities_gets_no_fork():
    with asker("--inh-caps=+net_raw", "--ambient-caps=+net_raw") as pid:
        assert "capabilities" in taken_over(pid)["refused"]
