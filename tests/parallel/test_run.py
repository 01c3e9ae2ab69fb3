"""Processes from a notebook: what comes back from them, and that nothing is left of them."""

from __future__ import annotations

import linecache
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from amp_lessons import parallel
from amp_lessons._base.worker import host as worker_host
from amp_lessons.parallel import running
from tests.parallel import leftovers


@pytest.fixture(autouse=True, scope="module")
def others():
    leftovers.remember_what_runs()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = leftovers.listening()
    yield
    assert leftovers.processes() == []
    assert leftovers.listening() == before


def its_host():
    return worker_host._hosts[running._THERE,].process


def ranks_sum(value):
    total = torch.tensor([float(dist.get_rank() + value)])
    dist.all_reduce(total)
    return dist.get_rank(), total.item()


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_one_result_per_rank_in_their_order(world_size):
    total = float(sum(range(world_size)) + 10 * world_size)
    assert parallel.run(ranks_sum, world_size, 10) == [(rank, total) for rank in range(world_size)]


def test_a_lambda_and_what_it_refers_to():
    offset = torch.tensor([2.0])
    assert parallel.run(lambda: (offset + dist.get_rank()).item(), 2) == [2.0, 3.0]


@dataclass
class Kept:
    rank: int
    weights: torch.Tensor


def test_results_of_any_kind_come_back():
    kept = parallel.run(lambda: Kept(dist.get_rank(), torch.ones(300_000) * dist.get_rank()), 2)
    assert [each.rank for each in kept] == [0, 1]
    assert all(isinstance(each, Kept) for each in kept)
    assert torch.equal(kept[1].weights, torch.ones(300_000))


def test_it_looks_as_under_torchrun(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_NOTEBOOK", "kept")
    monkeypatch.chdir(tmp_path)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OF_THE_NOTEBOOK")

    def seen():
        return [os.environ[name] for name in names], os.getcwd(), torch.get_num_threads()

    assert parallel.run(seen, 2)[1] == (["1", "1", "2", "2", "kept"], str(tmp_path), 1)
    assert parallel.run(torch.get_num_threads, 1, threads_per_rank=2) == [2]


def test_random_numbers_differ_between_ranks_and_runs():
    def draw():
        return random.random(), np.random.rand()

    drawn = [*parallel.run(draw, 2), *parallel.run(draw, 2)]
    assert len(set(drawn)) == len({of_numpy for _, of_numpy in drawn}) == 4


def test_a_taken_port_is_in_nobodys_way(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("MASTER_PORT", str(taken.getsockname()[1]))
        assert len(parallel.run(ranks_sum, 2, 0)) == 2


def test_from_another_thread():
    results = []
    thread = threading.Thread(target=lambda: results.extend(parallel.run(ranks_sum, 2, 0)))
    thread.start()
    thread.join()
    assert parallel.run(ranks_sum, 2, 0) == results  # a host outlives the thread that started it


def test_what_ranks_print_is_kept():
    results = parallel.run(lambda: print(f"from {dist.get_rank()}"), 2)
    assert results.printed == ("from 0\n", "from 1\n")


def misbehave(how):
    print("so far so good")
    if dist.get_rank() == 1:
        if how == "raise":
            raise ValueError("it is 3\nit should be 4")
        if how == "exit":
            os._exit(3)
        if how == "sys.exit":
            sys.exit("enough")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "generator":
            return (each for each in "abc")
        while how in ("sleep", "shout"):
            time.sleep(0.01) if how == "sleep" else print("ever on and on")
        return "early"
    return dist.barrier()


@pytest.mark.parametrize(
    ("how", "message", "traceback"),
    [
        ("raise", r"^rank 1 of 3 raised ValueError: it is 3 \(ranks 0 and 2 were stop", "it should be 4"),
        ("exit", r"^rank 1 of 3 ended with exit code 3 before it returned anything", ""),
        ("sys.exit", r"^rank 1 of 3 raised SystemExit: enough", "in misbehave"),
        ("kill", r"^rank 1 of 3 was ended by SIGKILL before it returned .*memory", ""),
        ("generator", r"^rank 1 of 3 returned a generator, which cannot be pickled: TypeError", "pickle"),
    ],
)
def test_a_rank_that_fails_is_named(how, message, traceback):
    start = time.monotonic()
    with pytest.raises(parallel.RankError, match=message) as caught:
        parallel.run(misbehave, 3, how)
    assert time.monotonic() - start < 30  # not when the time is over
    assert caught.value.rank == 1
    assert traceback in caught.value.traceback
    assert traceback in str(caught.value)
    assert "rank.py" not in str(caught.value)  # frames of ours are nobody's business
    assert caught.value.printed[1] == "so far so good\n"
    assert str(cloudpickle.loads(cloudpickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("sleep", r"^rank 1 of 2 was still running after 2 s \(rank 0 too\)"),
        ("shout", r"^rank 1 of 2 was still running after 2 s \(rank 0 too\)"),
        ("nothing", r"^rank 0 of 2 was still running after 2 s \(rank 1 had returned\)"),
    ],
)
def test_a_rank_that_hangs_says_where(how, message):
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=message) as caught:
        parallel.run(misbehave, 2, how, timeout_s=2)
    assert time.monotonic() - start < 30
    assert isinstance(caught.value, parallel.RankError)
    assert "in misbehave" in caught.value.traceback
    assert "in barrier" in str(caught.value)
    assert len(str(caught.value)) < 8_000


def test_all_that_raise_are_named():
    with pytest.raises(parallel.RankError, match=r"^rank 0 of 2 raised ZeroDivisionError: .* \(rank 1 too\)"):
        parallel.run(lambda: 1 / 0, 2)


def test_an_exception_that_cannot_be_put_into_words():
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError

    def fail():
        raise MuteError

    with pytest.raises(parallel.RankError, match=r"^rank 0 of 1 raised MuteError"):
        parallel.run(fail, 1)


def test_a_traceback_shows_the_source_of_a_cell():
    cell = "def fn():\n    wrong = 1 / 0  # in a cell\n"
    name = "/tmp/ipykernel_1/1.py"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    namespace = {"__name__": "__main__"}
    exec(compile(cell, name, "exec"), namespace)
    try:
        with pytest.raises(parallel.RankError) as caught:
            parallel.run(namespace["fn"], 1)
    finally:
        del linecache.cache[name]
    assert "wrong = 1 / 0  # in a cell" in str(caught.value)


class Stubborn:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self):
        return int, ("no number",)


def test_what_cannot_be_unpickled_names_its_rank():
    with pytest.raises(
        parallel.RankError, match=r"^rank 1 of 2 returned what cannot be unpickled here: Value"
    ):
        parallel.run(lambda: Stubborn() if dist.get_rank() else None, 2)


def test_what_cannot_be_copied_to_the_ranks_is_said():
    lock = threading.Lock()

    def holder():
        return lock

    with pytest.raises(TypeError, match=r"holder, or what it refers to, cannot be pickled: .*lock"):
        parallel.run(holder, 2)


def test_parts_of_the_course_that_load_lazily_may_be_referred_to():
    assert parallel.run(lambda: parallel.sent_bytes("all-reduce", 8, 2), 2) == [8, 8]


def test_processes_that_a_rank_started_end_with_it():
    def start():
        return subprocess.Popen(["sleep", "100"]).pid

    (pid,) = parallel.run(start, 1)
    assert leftovers.soon(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((None, 2), "fn is a function that each rank calls, not None"),
        ((print, 0), "world_size is a whole number of at least 1"),
        ((print, 65), "world_size is at most 64 processes, not 65"),
    ],
)
def test_other_arguments_are_refused(arguments, error):
    with pytest.raises((TypeError, ValueError), match=error):
        parallel.run(*arguments)


@pytest.mark.parametrize("timeout_s", [0, float("nan"), float("inf")])
def test_other_times_are_refused(timeout_s):
    with pytest.raises(ValueError, match="timeout_s is"):
        parallel.run(print, 2, timeout_s=timeout_s)


# From here on the order spares starts of the host: each test that ends it comes before one that starts it.


def test_ten_starts_leave_nothing():
    me, seconds = psutil.Process(), []
    parallel.run(ranks_sum, 2, 0)
    before = me.num_fds(), me.num_threads(), its_host().pid
    for _ in range(10):
        start = time.perf_counter()
        parallel.run(ranks_sum, 2, 0)
        seconds.append(time.perf_counter() - start)
    assert (me.num_fds(), me.num_threads(), its_host().pid) == before
    assert statistics.median(seconds) < 8


def test_stop_leaves_nothing_at_all():
    parallel.run(ranks_sum, 2, 0)
    parallel.stop()
    assert leftovers.everything() == []
    parallel.stop()


def test_the_users_interrupt_ends_the_ranks():
    parallel.run(ranks_sum, 2, 0)  # so that the interrupt finds ranks, not their host's start
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        parallel.run(misbehave, 2, "sleep")
    assert time.monotonic() - start < 30
    assert leftovers.everything() == []  # not even the host


SCRIPT = """
import time
from amp_lessons import parallel
parallel.run(lambda: print("started") or time.sleep(100), 2, timeout_s=90)
"""


@pytest.mark.thorough
def test_ranks_end_when_the_notebook_is_killed(tmp_path):
    script = tmp_path / "script.py"  # whose top level may be run once only: there is no guard in it
    script.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    notebook = subprocess.Popen([sys.executable, str(script)], env=environment)
    try:
        assert leftovers.soon(lambda: len(leftovers.processes(notebook.pid)) == 2, 60)
        family = psutil.Process(notebook.pid).children(recursive=True)
        assert len(family) == 3
    finally:
        notebook.kill()
        notebook.wait()
    assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.mark.slow
def test_a_host_that_was_killed_is_replaced_and_one_killed_at_work_is_told_of():
    parallel.run(ranks_sum, 2, 0)
    its_host().kill()
    its_host().wait()
    assert len(parallel.run(ranks_sum, 2, 0)) == 2
    threading.Timer(0.3, its_host().kill).start()
    with pytest.raises(RuntimeError, match="the host process has ended"):
        parallel.run(misbehave, 2, "sleep")
    assert leftovers.soon(lambda: leftovers.processes() == [])


@pytest.mark.thorough
@pytest.mark.slow
def test_a_host_that_nobody_needs_ends_by_itself(monkeypatch):
    parallel.stop()
    monkeypatch.setattr(running, "_IDLE_S", 0.1)
    parallel.run(ranks_sum, 2, 0)
    assert leftovers.soon(lambda: leftovers.everything() == [])


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a fork of this process is safe on Linux")
def test_a_fork_of_the_notebook_leaves_its_host_alone():
    parallel.run(ranks_sum, 1, 0)
    host = its_host().pid
    if (pid := os.fork()) == 0:
        answer = parallel.run(lambda: os.getppid(), 1)
        parallel.stop()
        os._exit(answer == [host])
    assert os.waitpid(pid, 0)[1] == 0
    assert parallel.run(lambda: os.getppid(), 1) == [host]


CELL = textwrap.dedent("""
    import time
    import torch.distributed as dist
    from amp_lessons import parallel
    def fn():
        return dist.get_rank()
    print(parallel.run(fn, 2))
    parallel.run(lambda: time.sleep(100), 2, timeout_s=90)
""")


@pytest.mark.slow
@pytest.mark.thorough
def test_in_a_kernel_a_cells_function_runs_and_its_interrupt_and_its_death_end_it():
    from jupyter_client.manager import start_new_kernel

    root = Path(__file__).parents[2]
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(root))
    try:
        client.execute("import os; print(os.getpid())")
        pid = int(_next_output(client, "stream")["text"])
        client.execute(CELL)
        assert _next_output(client, "stream")["text"] == "[0, 1]\n"
        assert leftovers.soon(lambda: len(leftovers.processes(pid)) == 2, 20)
        manager.interrupt_kernel()
        assert _next_output(client, "error")["ename"] == "KeyboardInterrupt"
        assert leftovers.processes(pid) == []
        client.wait_for_ready(timeout=30)  # what comes sooner is aborted together with the cell
        client.execute("parallel.run(lambda: time.sleep(100), 2, timeout_s=90)")
        assert leftovers.soon(lambda: len(leftovers.processes(pid)) == 2, 60)
        family = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        assert psutil.wait_procs(family, timeout=10)[1] == []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _next_output(client, kind):
    while (message := client.get_iopub_msg(timeout=60))["msg_type"] != kind:
        pass
    return message["content"]
