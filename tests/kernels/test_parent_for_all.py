"""Root's parent answers the accounts that it is for, and forks as the one who asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="accounts and /proc are Linux's"),
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root alone changes accounts"),
]

ACCOUNT = 65534

# A parent that has imported nothing, and then somebody else, who asks it for a kernel. It says who it became.
ASK = """
import json, os, socket, sys
from amp_lessons.kernels import birth, parent, process, request
def become_nothing_but_say_who(arguments):
    print(json.dumps({"user": os.getresuid(), "groups": os.getgroups(), "asked": arguments}), flush=True)
birth._run = become_nothing_but_say_who
birth._refuse_unreadable_python = lambda: None  # this Python may lie in root's home
listener = socket.socket(socket.AF_UNIX)
listener.bind("")
listener.listen()
serving = os.fork()
if serving == 0:
    parent.Parent(listener, {}, lifeline=None, members=sys.argv[1]).serve()
    os._exit(0)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect(listener.getsockname())
asked = request.Request(sys.executable, ["-f", "x"], {}, "/")
try:
    request.send(connection, asked, request.own_streams())
    kernel = process.ForkedProcess(connection, 60)
    print(json.dumps({"ended": kernel.wait(60)}), flush=True)
except (process.RefusedError, OSError) as error:
    print(json.dumps({"refused": str(error)}), flush=True)
"""


def asked(members: str) -> dict:
    with subprocess.Popen(
        [sys.executable, "-c", ASK, members], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            lines = []
            while not any("ended" in line or "refused" in line for line in lines):
                lines.append(process.stdout.readline())
                assert lines[-1], lines
        finally:
            os.killpg(process.pid, 9)
    return {name: value for line in lines for name, value in json.loads(line).items()}


def test_a_fork_is_the_asker_s_and_its_end_is_told():
    assert asked("") == {"user": [ACCOUNT] * 3, "groups": [], "asked": ["-f", "x"], "ended": 0}


def test_accounts_outside_the_group_get_no_fork():
    assert asked("root") == {"refused": "this account is not in the group root"}
