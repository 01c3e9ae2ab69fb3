"""Three learners and a teacher at one hub: each has what is theirs, and nobody else's; none harms another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import requests

from tests.classroom.conftest import ended, started
from tests.classroom.visitor import Visitor, wait_until
from tools.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # all of it takes a quiet machine a minute
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives learners accounts of their own")

READ = """
import os, pathlib
for path in {paths!r}:
    try:
        path = pathlib.Path(path)
        print("READ", path, (os.listdir(path) if path.is_dir() else path.read_bytes())[:20])
    except OSError as error:
        print(type(error).__name__)
"""

WRITE = """
for path in {paths!r}:
    try:
        open(path, "a").close()
        print("WRITTEN", path)
    except OSError as error:
        print(type(error).__name__)
"""

CONNECT = """
import socket
for path in {paths!r}:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("CONNECTED")
    except OSError as error:
        print(type(error).__name__)
"""

SOLVE = "from amp_lessons.keeping import progress; progress.record_try('decode_bits', passed=True)"


def test_everybody_runs_a_cell_in_a_copy_of_the_lessons(people, demo):
    for name, visitor in people.items():
        assert visitor.first_kernel.run("6 * 7") == "42"
        names = {entry["name"] for entry in visitor.ask("GET", "api/contents/").json()["content"]}
        assert {"00_start_here.ipynb", "03_loss_scaling.ipynb"} <= names
        assert (demo.home(name) / "my_lessons" / ".amp-lessons" / "delivered.json").is_file()


def test_the_course_is_there_on_one_thread(people):
    shown = people["learner1"].first_kernel.run("import torch, amp_lessons; print(torch.get_num_threads())")
    assert shown == "1\n"


@as_root
def test_nobody_reads_what_is_somebody_elses(people, demo):
    paths = [demo.state / "hub", demo.state / "homes", demo.state / "hub" / "jupyterhub.sqlite"]
    paths += [f"/proc/{pid}/environ" for pid in demo.running["pids"].values()]
    for name in ("learner2", "teacher"):
        people[name].first_kernel.run(SOLVE)
        home, server = demo.home(name), pid_of_server(demo, name)
        files = [home / "my_lessons" / "00_start_here.ipynb", *home.rglob("progress.json")]
        files += [home / ".run" / "jupyter_cookie_secret", demo.state / "notes" / name]
        assert len(files) == 4, "progress is kept in the home"
        paths += [home, *files, f"/proc/{server}/environ", f"/proc/{server}/cwd"]
    shown = people["learner1"].first_kernel.run(READ.format(paths=[str(path) for path in paths]))
    assert shown.split() == ["PermissionError"] * len(paths)


@as_root
def test_nobody_listens_to_anothers_kernel(people, demo):
    """Over TCP every account could subscribe to what a kernel shows; these sockets are files."""
    learner = people["learner2"]
    (file,) = (demo.home("learner2") / ".run").glob(f"kernel-{learner.first_kernel.id}.json")
    said = json.loads(file.read_text("utf-8"))
    assert said["transport"] == "ipc"
    sockets = [f"{said['ip']}-{said[port]}" for port in ("iopub_port", "shell_port", "stdin_port")]
    assert all(map(os.path.exists, sockets))
    shown = people["learner1"].first_kernel.run(CONNECT.format(paths=sockets))
    assert shown.split() == ["PermissionError"] * 3


@as_root
def test_the_course_and_python_cannot_be_changed(people):
    code = (
        "import amp_lessons.exercises, sys, torch; paths = [amp_lessons.exercises.__file__, torch.__file__]"
    )
    kernel = people["learner1"].first_kernel
    kernel.run(f"{code}; paths.append(sys.prefix + '/pyvenv.cfg')")
    assert kernel.run(WRITE.format(paths=0).replace("in 0", "in paths")).split() == ["PermissionError"] * 3


@pytest.mark.parametrize("whose", ["learner2", "teacher"])
def test_anothers_server_is_refused(people, whose):
    answer = people["learner1"].ask("GET", "api/contents", whose=whose)
    assert answer.status_code == 403
    assert "00_start_here" not in answer.text


def test_no_token_a_wrong_one_and_an_expired_one_are_refused(people, demo):
    teacher = people["teacher"]
    made = teacher.hub("POST", "users/teacher/tokens", json={"expires_in": 2}).json()["token"]

    def status(token, path="users"):
        headers = {"Authorization": f"token {token}"} if token else {}
        return requests.get(f"{teacher.url}/hub/api/{path}", headers=headers, timeout=60).status_code

    assert status(made) == 200
    assert status("") == status("0" * 32) == status("' OR 1=1 --") == 403
    wait_until(lambda: status(made) == 403, "the token to expire")
    own = people["learner1"].hub("POST", "users/learner1/tokens", json={}).json()["token"]
    assert status(own, "users/learner1") == 200
    assert status(own) == 403, "a learner does not list the class"
    assert status(own, "users/learner2") == 404


def test_a_wrong_password_and_an_unknown_name_do_not_come_in(demo):
    for name, password in (("learner1", "wrong"), ("learner1", ""), ("root", ""), ("nobody", "x")):
        visitor = demo.visitor("learner1")
        visitor.http, visitor.name, visitor.password = requests.Session(), name, password
        assert visitor.log_in().status_code == 403


def test_one_fills_memory_one_loops_one_prints_and_the_others_work(people, demo):
    # Memory that is shared is not counted by the limit of a process: the hub has to see it.
    filling = (
        "import mmap; all = [mmap.mmap(-1, 2**28) for _ in range(12)]\nfor m in all: m.write(b'1' * 2**28)"
    )
    greedy, looping, printing = (people[f"learner{number}"].kernel() for number in (1, 2, 3))
    before = resident_mib(demo)
    greedy.send(filling)
    looping.send("while True: pass")
    printing.send("while True: print('again and again ' * 100)")
    assert says(printing, "IOPub data rate exceeded")
    started = time.monotonic()
    for name, visitor in people.items():
        assert visitor.first_kernel.run("6 * 7") == "42", name
    assert time.monotonic() - started < 30
    assert says(greedy, '"execution_state": "restarting"')
    assert "needed more memory than the 1280 MiB" in wait_until(
        lambda: greedy.connect().run("1"), "a new kernel"
    )
    for kernel in (looping, printing):
        assert kernel.visitor.ask("POST", f"api/kernels/{kernel.id}/interrupt").status_code == 204
        # A cell that waits behind an interrupted one is aborted with it.
        assert wait_until(lambda: kernel.connect().run("6 * 7").endswith("42"), "a kernel that answers")  # noqa: B023
    assert resident_mib(demo) - before < 200, "hub and proxy have kept what a learner printed"
    for kernel in (greedy, looping, printing):
        kernel.visitor.ask("DELETE", f"api/kernels/{kernel.id}")


def test_one_process_that_asks_for_too_much_gets_an_error_and_keeps_its_kernel(people):
    kernel = people["learner1"].first_kernel
    kernel.run("kept = 42")
    shown = kernel.run("x = bytearray(3 * 2**30)")
    assert shown.startswith("MemoryError")
    assert "A kernel may use 1280 MiB" in shown
    assert kernel.run("kept") == "42"


def test_a_killed_hub_is_started_again_and_nobody_notices(people, demo):
    learner, teacher = people["learner2"], people["teacher"]
    learner.first_kernel.run(f"work = 'not lost'; {SOLVE}")
    server = pid_of_server(demo, "learner2")
    for process, number in ((demo.running["pids"]["hub"], signal.SIGKILL), (demo.command.pid, signal.SIGHUP)):
        hub = demo.hub()
        os.kill(process, number)
        assert learner.first_kernel.run("work") == "'not lost'", "while there is no hub"
        wait_until(lambda: demo.hub() not in (None, hub), "a new hub")  # noqa: B023
    assert wait_until(lambda: learner.server()["ready"], "the server to be found")
    assert pid_of_server(demo, "learner2") == server, "adopted, not started anew"
    assert learner.first_kernel.connect().run("work") == "'not lost'"
    kept = next(demo.home("learner2").rglob("progress.json")).read_text("utf-8")
    assert json.loads(kept)["exercises"]["decode_bits"]["solved_at"]
    assert demo.visitor("learner2").server()["ready"], "a new login works"
    assert teacher.hub("DELETE", "users/learner3/server").status_code in (202, 204)
    wait_until(lambda: not teacher.hub("GET", "users/learner3").json()["servers"], "the end of a server")


# As /etc/shadow has it: openssl passwd -6 -salt classroom lovelace-1815
PASSWORD = "lovelace-1815"
HASHED = "$6$classroom$zWdp4cGLqXEIBLRc.O1EhbqgXX.irM5qNKOcyMe5Bs2DT66N3z6xKbO7CiF2gLCHWWMIA2QipQ0CRC3CKbe49."

WITH_ACCOUNTS = """
set -e
for file in passwd shadow group; do
    cat "$0/$file" >> "$0/all-$file"
    mount --bind "$0/all-$file" "/etc/$file"
done
exec "$@"
"""


@as_root
def test_accounts_of_this_machine_log_in_by_their_passwords(tmp_path):
    """A real hub, with PAM; the accounts are in files that only its own mount namespace sees in ``/etc``."""
    pytest.importorskip("jupyterhub", reason="needs the extra 'classroom'")
    homes = Path(tempfile.mkdtemp(prefix="amp-home-", dir="/tmp"))
    homes.chmod(0o755)
    for file in ("passwd", "shadow", "group"):
        shutil.copy(f"/etc/{file}", tmp_path / f"all-{file}")
    for number, name in enumerate(("ada", "bob"), start=61001):
        append(tmp_path / "passwd", f"{name}:x:{number}:{number}::{homes / name}:/bin/sh")
        append(tmp_path / "shadow", f"{name}:{HASHED}:20000:0:99999:7:::")
        append(tmp_path / "group", f"{name}:x:{number}:")
        (homes / name).mkdir()
        (homes / name).chmod(0o755)
        os.chown(homes / name, number, number)
    append(tmp_path / "group", "learners:x:61000:ada")
    namespace = ["unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_ACCOUNTS, str(tmp_path)]
    demo = started("--port", str(free_port()), before=namespace)
    try:
        assert "no group teachers" in demo.said()
        ada, bob = (Visitor(demo.running["url"], name, PASSWORD) for name in ("ada", "bob"))
        assert bob.log_in().status_code == 403, "in none of the groups"
        assert ada.log_in().status_code == 200
        kernel = ada.start_server().kernel()
        shown = kernel.run("import os; print(os.getresuid(), os.getgroups(), os.getcwd())")
        assert shown == f"(61001, 61001, 61001) [61000, 61001] {homes / 'ada'}\n"
        assert (homes / "ada").stat().st_mode & 0o777 == 0o700
    finally:
        ended(demo)
        shutil.rmtree(homes)


def append(path, line):
    with path.open("a") as file:
        file.write(line + "\n")


def pid_of_server(demo, name):
    """Return the process of a learner's server, found without asking the hub."""
    for process in psutil.process_iter(["cmdline", "environ"]):
        command, environment = process.info["cmdline"] or [], process.info["environ"] or {}
        mine = environment.get("HOME") == str(demo.home(name))
        if mine and "jupyterhub.singleuser" in command:
            return process.pid
    raise AssertionError(f"{name} has no server")


def resident_mib(demo):
    return sum(psutil.Process(pid).memory_info().rss for pid in demo.running["pids"].values()) / 2**20


def says(kernel, words):
    """Say whether a kernel's messages come to contain some words."""
    until = time.monotonic() + 90
    return any(words in json.dumps(message) for message in kernel.messages() if time.monotonic() < until)
