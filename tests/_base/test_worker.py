"""A worker: whatever somebody's function does, its caller gets an answer or an ending, and plain data."""

from __future__ import annotations

import json
import math
import os
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from amp_lessons import exercises
from amp_lessons._base.worker import host as worker_host
from amp_lessons._base.worker import plain, serving
from amp_lessons._base.worker.client import Ended, Limits, Raised, Worker
from amp_lessons._base.worker.host import Host, HostEndedError, host
from amp_lessons._base.worker.plain import GarbledError, Handle, Other, decode, encode
from amp_lessons.course.exercises import shelf

CODES = "decode_bits"
QUICK = Limits(cpu_s=1.0, memory=2**30)


@pytest.fixture(scope="module")
def own_host():
    """A host of this module's, which its tests may end."""
    mine = Host()
    yield mine
    mine.close()


def answer(hosts, body, *args, limits=QUICK):
    """Return what ``attempt(*args)`` with this body returns in a worker of its own."""
    source = "def attempt(*args):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    with Worker(hosts, {"source": source, "names": ["attempt"]}, limits) as worker:
        return worker.call(Handle(0), *args)


# --- plain data


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -(2**70),
        0.1,
        math.inf,
        -0.0,
        "täxt",
        [1, (2.0, "x")],
        {"a": [1], 2: None},
        torch.float16,
    ],
)
def test_plain_values_arrive_as_they_are(value):
    arrived = decode(encode(value))
    assert arrived == value
    assert type(arrived) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([1.0, 448.0]).to(torch.float8_e4m3fn),
        torch.tensor([True, False]),
        torch.empty(0, 3),
    ],
)
def test_tensors_arrive_bit_by_bit(value):
    arrived = decode(encode(value))
    assert (arrived.dtype, arrived.shape) == (value.dtype, value.shape)
    assert torch.equal(arrived.double(), value.double())


def test_an_object_arrives_as_the_name_of_its_type():
    class Equal(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

    assert decode(encode(Equal(2.0))) != 3.0
    assert decode(encode(object())) == Other("builtins.object")
    assert decode(encode(10**5000)).kind == "builtins.int"


def message(text: str, body: bytes = b"") -> bytes:
    return struct.pack("!QQ", len(text), len(body)) + text.encode() + body


@pytest.mark.parametrize(
    "garbled",
    [
        b"",
        b"short",
        message("[1]"),
        message('{"tensor": ["float32", [2], 4]}', b"1234"),
        message('{"tensor": ["float32", [-1], 4]}', b"1234"),
        message('{"tensor": ["load", [1], 4]}', b"1234"),
        message('{"other": 3}'),
        message('{"list": 3}'),
        message('{"list": [], "tuple": []}'),
        message('{"dict": [[{"list": []}, null]]}'),
        message('{"handle": 0}'),
        message('{"eval": "1"}'),
        message('{"list": [' * 5000),
        message(f'{{"list": {json.dumps([1] * 300_000)}}}'),
        message("1") + b"more",
    ],
    ids=range(15),
)
def test_what_is_no_message_is_refused(garbled):
    with pytest.raises(GarbledError):
        decode(garbled)


def test_a_message_that_is_too_long_is_not_read():
    with pytest.raises(GarbledError, match="too long"):
        plain.size(struct.pack("!QQ", 2**20, 2**20), most=2**20)


# --- answers


def test_a_call_returns_what_the_function_returns(own_host):
    assert answer(own_host, "return args[0] + 1, 'text'", torch.ones(2))[1] == "text"


def test_an_exception_names_its_kinds_and_the_line(own_host):
    with pytest.raises(Raised) as raised:
        answer(own_host, "nothing = 0\nreturn 1 // nothing")
    assert raised.value.kinds[:2] == ["ZeroDivisionError", "ArithmeticError"]
    assert raised.value.line.startswith("line 3")


@pytest.mark.parametrize(
    "body", ["raise SystemExit(0)", "return input()", "return attempt()", "raise KeyboardInterrupt"]
)
def test_what_python_raises_is_an_answer(own_host, body):
    with pytest.raises(Raised):
        answer(own_host, body)


def test_a_result_of_many_megabytes_arrives(own_host):
    result = answer(own_host, "import torch\nreturn torch.ones(2**24)", limits=Limits(5.0))
    assert result.numel() == 2**24


# --- endings


ENDINGS = {
    "exits": ("import os\nos._exit(3)", "died"),
    "crashes": ("import ctypes\nctypes.string_at(0)", "died"),
    "loops": ("while True: pass", "time"),
    "ignores its signal": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        None,
    ),
    "sleeps": ("import time\ntime.sleep(60)", "time"),
    "floods": ("import os\nwhile True: os.write(1, b'x' * 4096)", "time"),
    "forges": (
        "import contextlib, os\nfor n in range(3, 64):\n    with contextlib.suppress(OSError):\n"
        "        os.write(n, b'forged' * 20)",
        "garbled",
    ),
    "closes": ("import os\nos.closerange(0, 64)", "died"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)", "died"),
}


@pytest.mark.parametrize(("body", "how"), ENDINGS.values(), ids=ENDINGS)
def test_whatever_it_does_it_ends_and_the_next_one_is_served(own_host, body, how):
    began = time.monotonic()
    with pytest.raises(Ended) as ended:
        answer(own_host, body)
    assert how in (None, ended.value.how)
    assert time.monotonic() - began < 30
    assert answer(own_host, "return 1", limits=Limits(5.0)) == 1


def test_a_loop_says_where_it_is(own_host):
    with pytest.raises(Ended) as ended:
        answer(own_host, "print('File \"mine\", line 7')\nwhile True:\n    pass")
    assert '"<submission>", line' in ended.value.where.splitlines()[1]


def test_what_is_printed_is_kept_in_part(own_host):
    source = "def attempt():\n    for n in range(10**5): print(f'{n:04}')\n    return 2"
    with Worker(own_host, {"source": source, "names": ["attempt"]}) as worker:
        assert worker.call(Handle(0)) == 2
    assert worker.text.startswith("0000\n0001\n")
    assert worker.text.endswith("99998\n99999\n")
    assert f"\n… {worker.characters - 16_000:,} bytes left out …\n" in worker.text
    assert len(worker.text) < 17_000


def test_memory_is_limited(own_host):
    with pytest.raises((Raised, Ended)):
        answer(own_host, "hog = []\nwhile True: hog.append(bytearray(2**24))", limits=Limits(10.0, 2**28))


def test_nothing_is_left_behind(own_host):
    body = """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            os._exit(0)
        time.sleep(0.2)
        return os.getppid()
    """
    its_host = answer(own_host, body)
    with open(f"/proc/{its_host}/task/{its_host}/children", encoding="ascii") as file:
        assert not file.read().split()


def test_several_threads_may_ask_a_host_that_starts():
    mine = Host()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: answer(mine, "return 1", limits=Limits(5.0)), range(4))) == [1] * 4
    mine.close()


def test_a_host_that_was_killed_says_so_and_another_one_comes():
    first = host(("json",))
    assert answer(first, "return 1", limits=Limits(5.0)) == 1
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    with pytest.raises((HostEndedError, Ended)):
        answer(first, "return 1")
    assert answer(host(("json",)), "return 2", limits=Limits(5.0)) == 2


def test_a_host_that_idles_ends_and_another_one_comes(monkeypatch):
    monkeypatch.setattr(worker_host, "_hosts", {})
    idle = host(idle_s=0.5)
    assert answer(idle, "import time\ntime.sleep(2)\nreturn 1", limits=Limits(5.0)) == 1  # it works meanwhile
    assert idle.process.wait(60) == 0
    assert answer(host(), "return 2", limits=Limits(5.0)) == 2
    worker_host.close()


def test_a_host_that_cannot_start_says_why():
    mine = Host(("not_there",))
    with pytest.raises(HostEndedError, match=r"could not start:\n(.*\n)*ModuleNotFoundError: .*not_there"):
        answer(mine, "return 1")
    mine.close()


def test_a_learner_that_kills_the_host_ends_nothing_but_its_own_check():
    mine = Host()
    with pytest.raises((HostEndedError, Ended)):
        answer(mine, "import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(5)")
    mine.close()


# --- the kernel that asks


@pytest.fixture
def solution():
    """The solution as a notebook defines it: the pickle holds all of it."""
    space = {"__name__": "__main__"}
    exec(shelf.find(CODES).solution_source, space)
    return space[CODES]


def test_what_a_kernel_has_patched_changes_no_verdict(solution, monkeypatch):
    monkeypatch.setattr(math, "ldexp", lambda *parts: 1.0)
    monkeypatch.setattr(torch.Tensor, "view", lambda self, *shape: self)
    report = exercises.check(CODES, solution)
    assert report.passed
    assert report.printed == ""
    wrong = exercises.check(CODES, lambda bits, exponent_bits, mantissa_bits: "three")
    assert wrong.findings[0].code == "wrong_return_type"


def test_an_interrupt_ends_the_check_and_the_next_one_works(solution):
    def endless(bits, exponent_bits, mantissa_bits):
        while True:
            pass

    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    assert exercises.check(CODES, solution).passed  # the host runs
    timer = threading.Timer(1.0, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        exercises.check(CODES, endless)
    timer.join()
    assert exercises.check(CODES, solution).passed


def test_where_nothing_may_fork_checks_are_spawned(solution, monkeypatch):
    monkeypatch.setenv(serving.SPAWNS, "1")
    monkeypatch.setattr(worker_host, "_hosts", {})
    assert answer(worker_host.host(), "import sys\nreturn sys.argv", limits=Limits(10.0)) == [
        "-c"
    ]  # not the host's
    assert exercises.check(CODES, solution).passed
    wrong = exercises.check(CODES, lambda bits, exponent_bits, mantissa_bits: sys.exit())
    assert not wrong.passed
    worker_host.close()


def test_a_program_that_ends_takes_its_host_along():
    program = (
        "import os, time\nfrom amp_lessons._base.worker.host import host\n"
        "mine = host()\nmine.ask('import', 'json')\nprint(mine.process.pid, flush=True)\n"
        "os.fork() or (os.closerange(0, 3), time.sleep(20), os._exit(0))"  # it has the connection still
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and os.path.exists(f"/proc/{int(done.stdout)}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{int(done.stdout)}")
