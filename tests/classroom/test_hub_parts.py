"""What the hub is made of, piece by piece, without a hub."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

pytest.importorskip("jupyterhub", reason="needs the extra 'classroom'")

from classroom import sizes
from classroom.jupyterhub import __main__ as command
from classroom.jupyterhub import accounts, authenticators, cgroups, preflight, proxy, reachable, watch
from classroom.jupyterhub.limits import MIB, Limits

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


FORKING = """
import os, time
try:
    for _ in range(9):
        os.fork() or time.sleep(99)
except OSError:
    print("no more", flush=True)
    time.sleep(99)
"""


def python(code, preexec=None):
    """Run a few lines in a process of their own, and return what they print."""
    return subprocess.run(
        [sys.executable, "-c", code],
        preexec_fn=preexec,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    ).stdout.strip()


@pytest.mark.parametrize("asked_for_mib", [64, 1024])
def test_a_process_gets_an_error_beyond_its_memory(asked_for_mib):
    code = f"try: x = bytearray({asked_for_mib} * 2**20); print('got it')\nexcept MemoryError: print('no')"
    assert python(code, Limits(512 * MIB).apply) == ("got it" if asked_for_mib == 64 else "no")


def test_a_file_ends_at_its_limit(tmp_path):
    code = f"open({str(tmp_path / 'f')!r}, 'wb', buffering=0).write(b'x' * 1000)"
    assert python(code, Limits(file_bytes=1000).apply) == ""
    assert "File too large" in python(code.replace("'wb'", "'ab'"), Limits(file_bytes=1000).apply)
    assert (tmp_path / "f").stat().st_size == 1000


def test_what_is_only_mapped_is_not_counted():
    code = "import mmap; m = mmap.mmap(-1, 2**30, prot=mmap.PROT_READ); print('mapped')"
    assert python(code, Limits(256 * MIB).apply) == "mapped"


def test_the_largest_process_is_ended_and_the_server_is_spared():
    filling = "import time; x = bytearray(b'1') * {mib} * 2**20; print(1, flush=True); time.sleep(100)"
    started = [
        subprocess.Popen([sys.executable, "-c", filling.format(mib=mib)], stdout=subprocess.PIPE)
        for mib in (300, 200, 50)
    ]
    try:
        for each in started:
            assert each.stdout.readline() == b"1\n"
        server, kernel, small = started
        candidates = [psutil.Process(each.pid) for each in started]
        assert watch.end_the_largest(candidates, 700 * MIB, spare=server.pid) == 0
        assert watch.end_the_largest(candidates, 450 * MIB, spare=server.pid) == 1
        assert kernel.wait(10) == -9
        assert server.poll() is None
        assert small.poll() is None
    finally:
        for each in started:
            each.kill()
            each.communicate()


def test_limits_are_written_as_version_1_and_2_want_them(tmp_path):
    one = cgroups.Place({name: tmp_path / name for name in cgroups.CONTROLLERS}, version=1)
    two = cgroups.Place(dict.fromkeys(cgroups.CONTROLLERS, tmp_path / "two"), version=2)
    for folder in {*one.folders.values(), *two.folders.values()}:
        folder.mkdir()
    for place in (one, two):
        place.group("ada").make(2**30, 1.5, 100)
    written = {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert written == {
        "memory/ada/memory.limit_in_bytes": str(2**30),
        "cpu/ada/cpu.cfs_period_us": "100000",
        "cpu/ada/cpu.cfs_quota_us": "150000",
        "pids/ada/pids.max": "100",
        "two/ada/memory.max": str(2**30),
        "two/ada/cpu.max": "150000 100000",
        "two/ada/pids.max": "100",
    }


@pytest.mark.parametrize(("version", "file"), [(1, "memory.oom_control"), (2, "memory.events")])
def test_kills_for_memory_are_counted(tmp_path, version, file):
    group = cgroups.Group({"memory": tmp_path}, version)
    assert group.killed_for_memory() == 0
    (tmp_path / file).write_text("under_oom 0\noom_kill 3\n")
    assert group.killed_for_memory() == 3


def test_a_delegated_group_of_version_2_is_prepared(tmp_path, monkeypatch):
    own = tmp_path / "amp.service"
    own.mkdir()
    for name, text in (("cgroup.controllers", "cpu memory pids io"), ("cgroup.procs", "")):
        (tmp_path / name).write_text(text)
        (own / name).write_text(text)
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    place = cgroups.place("amp.service")
    assert place == cgroups.Place(dict.fromkeys(("memory", "cpu", "pids"), own / "learners"), version=2)
    for folder in (own, own / "learners"):
        assert (folder / "cgroup.subtree_control").read_text() == "+memory +cpu +pids"


def test_a_group_that_nobody_has_given_us_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("memory")
    before = list(tmp_path.rglob("*"))
    assert cgroups.place() is None
    assert list(tmp_path.rglob("*")) == before


@as_root
def test_a_real_group_holds_a_process_and_is_removed_with_it():
    if not os.access(cgroups.ROOT / "pids" / "cgroup.procs", os.W_OK):
        pytest.skip("no control groups of version 1 here")
    name = f"amp-test-{os.getpid()}"
    place = cgroups.Place({"pids": cgroups.ROOT / "pids" / name}, version=1)
    group = place.group("ada")
    place.folders["pids"].mkdir()
    try:
        group.make(None, None, tasks=3)
        code = FORKING
        process = subprocess.Popen(
            [sys.executable, "-c", code], preexec_fn=group.enter, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"no more\n"
        assert len(group.processes()) == 3
        group.remove()
        assert process.wait(10) == -9
        assert not group.folders["pids"].exists()
    finally:
        group.remove()
        place.folders["pids"].rmdir()


@as_root
def test_an_account_is_taken_for_good_and_its_home_is_closed(tmp_path):
    account = accounts.made_up(["ada"], tmp_path, 1_234_000)("ada")
    account.make_home()
    account.home.chmod(0o777)
    account.make_home()
    found = account.home.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1_234_000, 1_234_000, 0o700)
    for folder in tmp_path.relative_to("/tmp").parents if tmp_path.is_relative_to("/tmp") else ():
        (Path("/tmp") / folder).chmod((Path("/tmp") / folder).stat().st_mode | 0o011)
    tmp_path.chmod(0o711)
    child = os.fork()
    if not child:
        account.become()
        same = (os.getresuid(), os.getgroups()) == ((1_234_000,) * 3, [])
        try:
            os.setuid(0)
        except PermissionError:
            os._exit(0 if same and os.getcwd() == str(account.home) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@as_root
def test_a_home_that_is_a_link_is_not_followed(tmp_path):
    account = accounts.made_up(["ada"], tmp_path, 1_234_000)("ada")
    (tmp_path / "elsewhere").mkdir()
    account.home.symlink_to("elsewhere")
    with pytest.raises(OSError, match="ada"):
        account.make_home()
    assert (tmp_path / "elsewhere").stat().st_uid == 0


def test_root_is_no_learner():
    with pytest.raises(KeyError, match="root"):
        accounts.of_this_machine("root")


@pytest.mark.parametrize("kind", [authenticators.DemoAuthenticator, authenticators.LocalDummyAuthenticator])
@pytest.mark.parametrize("url", ["http://:8000", "http://0.0.0.0:8000", "http://10.0.0.1", "http://[::]:80"])
def test_made_up_people_are_refused_beyond_this_machine(kind, url):
    with pytest.raises(ValueError, match="this machine alone"):
        authenticators.refuse_other_machines(SimpleNamespace(parent=SimpleNamespace(bind_url=url)))
    assert "refuse_other_machines" in kind.__init__.__code__.co_names


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--demo", "3", "--bind", "0.0.0.0"], "answers on 127.0.0.1 alone"),
        (["--demo", "0"], "1 or more"),
    ],
)
def test_what_must_not_be_served_is_refused_in_words(options, sentence, capsys):
    assert command.main(options) == 1
    assert sentence in capsys.readouterr().err


def test_without_root_a_real_hub_is_refused_in_words(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert command.main([]) == 1
    assert "--demo 3" in capsys.readouterr().err


def test_what_is_closed_on_the_way_is_found(tmp_path):
    tmp_path.chmod(0o711)
    inside = tmp_path / "closed" / "open"
    inside.mkdir(parents=True)
    inside.parent.chmod(0o700)
    found = reachable.closed_above(inside)
    assert found in (inside.parent, *tmp_path.parents)
    inside.parent.chmod(0o711)
    assert reachable.closed_above(inside) != inside.parent
    assert reachable.closed([Path("/usr/bin")]) == {}


def test_nodes_proxy_is_preferred_and_told_from_the_other(tmp_path, monkeypatch):
    for folder, first in (("python", "#!/usr/bin/python3"), ("node", "#!/usr/bin/env node")):
        program = tmp_path / folder / proxy.NAME
        program.parent.mkdir()
        program.write_text(first + "\n")
    monkeypatch.setenv("PATH", str(tmp_path / "python"))
    assert proxy.command()[0][-1] == "classroom.jupyterhub.proxy"
    monkeypatch.setenv("PATH", f"{tmp_path / 'python'}{os.pathsep}{tmp_path / 'node'}")
    assert proxy.command()[0] == [str(tmp_path / "node" / proxy.NAME)]


def test_every_lesson_has_its_size_and_fits_its_limit():
    lessons = {path.name[:2] for path in (sizes.FILE.parents[1] / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    assert set(sizes.measured()) == lessons == {*sizes.EVERYDAY, "07"}
    for number, lesson in sizes.measured().items():
        assert sizes.limit_mib([number]) >= max(
            lesson.asked_for_mib, lesson.resident_mib + sizes.server_mib()
        )
        assert sizes.guarantee_mib([number]) <= sizes.limit_mib([number])


@pytest.mark.timeout(200)
def test_what_a_killed_command_has_started_ends_with_it():
    pytest.importorskip("configurable_http_proxy", reason="needs the extra 'classroom'")
    from tests.classroom import conftest

    demo = conftest.started("--demo", "1")
    try:
        assert len(demo.left()) >= 2, "the proxy and the hub"
        demo.command.kill()
        demo.command.wait(10)
        until = time.monotonic() + 60
        while demo.left() and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        conftest.ended(demo)


def test_sentences_say_what_keeps_learners_apart(monkeypatch, tmp_path):
    options = command.parser().parse_args(["--demo", "1"])
    people = {"passwords": {"learner1": "secret"}}
    said = " ".join(preflight.sentences(options, "http://127.0.0.1:1", people, tmp_path))
    assert "learner1  secret" in said
    assert ("You are not root" in said) == (os.geteuid() != 0)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "could read each other's files" in " ".join(preflight.sentences(options, "", people, tmp_path))
