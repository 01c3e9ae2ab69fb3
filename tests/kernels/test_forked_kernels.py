"""A forked kernel is a kernel like any other: it runs, hears interrupts, restarts, ends, and is its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from amp_lessons.kernels.own_parent import OwnParent
from amp_lessons.kernels.process import ForkedProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="PyTorch survives a fork on Linux alone")

WAIT_S = 30


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def lives(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module")
def kernel(make_kernel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("learner")
    return make_kernel(cwd=str(folder), env={**os.environ, "GREETING": "hello", "JPY_PARENT_PID": "4"})


def test_it_is_a_child_of_the_parent_and_has_the_course_loaded(kernel):
    assert isinstance(kernel.process, ForkedProcess)
    assert kernel.ask("__import__('os').getppid()") == OwnParent.instance().pid
    assert (
        kernel.ask("[name in __import__('sys').modules for name in ('torch', 'amp_lessons.views')]")
        == [True] * 2
    )


def test_it_has_folder_and_environment_of_the_request(kernel, tmp_path_factory):
    os_ = "__import__('os')"
    folder, greeting = kernel.ask(f"[{os_}.getcwd(), {os_}.environ['GREETING']]")
    assert Path(folder).parent == tmp_path_factory.getbasetemp()
    assert greeting == "hello"


def test_gradients_and_checks_work_in_it(kernel):
    reply = kernel.execute(
        "import torch\n"
        "from amp_lessons import exercises\n"
        "weight = torch.ones(300, 300, requires_grad=True)\n"
        "(weight @ weight).sum().backward()\n"
        "exec(exercises.solution('largest_safe_scale').source)\n"
        "assert exercises.check('largest_safe_scale', largest_safe_scale).passed\n"
    )
    assert reply["status"] == "ok", reply


def test_its_random_numbers_are_its_own(kernel, new_kernel):
    draws = (
        "[__import__('torch').rand(1).item(), __import__('numpy').random.rand(), "
        "__import__('random').random(), "
        "__import__('multiprocessing').current_process().authkey.hex()]"
    )
    for mine, other in zip(kernel.ask(draws), new_kernel().ask(draws), strict=True):
        assert mine != other


def test_no_file_of_another_kernel_is_open_in_it(kernel, new_kernel):
    sockets = (
        "sorted(l for d in __import__('os').listdir('/proc/self/fd') "
        "if (p := '/proc/self/fd/' + d) and __import__('os').path.exists(p) "
        "and (l := __import__('os').readlink(p)).startswith('socket'))"
    )
    assert not set(kernel.ask(sockets)) & set(new_kernel().ask(sockets))


def test_an_interrupt_reaches_it(kernel):
    kernel.client.execute("import time\nprint('begun', flush=True)\nwhile True:\n    time.sleep(0.01)")
    message = kernel._run(kernel.client.get_iopub_msg(timeout=WAIT_S))
    while message["content"].get("text") != "begun\n":
        message = kernel._run(kernel.client.get_iopub_msg(timeout=WAIT_S))
    kernel.do("interrupt_kernel")
    reply = kernel._run(kernel.client.get_shell_msg(timeout=WAIT_S))
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert kernel.ask("1 + 1") == 2


def test_it_asks_its_reader(kernel):
    reply = kernel.execute(
        "answer = input('name? ')",
        allow_stdin=True,
        stdin_hook=lambda message: kernel.client.input("Ada"),
    )
    assert reply["status"] == "ok"
    assert kernel.ask("answer") == "Ada"


def test_it_restarts_as_another_process_without_what_was_defined(new_kernel):
    kernel = new_kernel()
    before = kernel.process.pid
    kernel.execute("defined = 1")
    kernel.do("restart_kernel", now=True)
    kernel.ready()
    assert isinstance(kernel.process, ForkedProcess)
    assert kernel.process.pid != before
    assert kernel.ask("'defined' in globals()") is False
    until(lambda: not psutil.pid_exists(before))


def test_it_shuts_down_and_leaves_no_zombie(new_kernel):
    kernel = new_kernel()
    pid = kernel.process.pid
    kernel.do("shutdown_kernel")
    until(lambda: not psutil.pid_exists(pid))


def test_its_death_is_told(new_kernel):
    process = new_kernel().process
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.poll() is not None)
    assert process.poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("name", "value"), [("OMP_NUM_THREADS", "3"), ("PYTHONHASHSEED", "7"), ("LD_LIBRARY_PATH", "/opt")]
)
def test_what_would_have_been_read_before_is_not_forked(new_kernel, caplog, name, value):
    kernel = new_kernel(env={**os.environ, name: value})
    assert isinstance(kernel.process, subprocess.Popen)
    assert f"it wants {name} to be {value}" in caplog.text
    assert kernel.ask(f"__import__('os').environ[{name!r}]") == value


def test_kernels_outlive_the_parent_and_another_one_forks_the_next(new_kernel):
    before, first = new_kernel(), OwnParent.instance().pid
    os.kill(first, signal.SIGKILL)
    until(lambda: OwnParent.instance().pid is None)
    after = new_kernel()
    assert isinstance(after.process, ForkedProcess)
    assert after.ask("__import__('os').getppid()") == OwnParent.instance().pid != first
    assert before.ask("1 + 1") == 2
    before.do("shutdown_kernel", now=True)
    assert before.process is None


_SERVER = """
import asyncio, sys, time
from importlib.metadata import EntryPoint
from jupyter_client import AsyncKernelManager
from jupyter_client.provisioning import KernelProvisionerFactory
from amp_lessons.kernels.own_parent import OwnParent
factory = KernelProvisionerFactory.instance()
factory.provisioners["forked"] = EntryPoint("forked", sys.argv[1], factory.GROUP_NAME)
factory.default_provisioner_name = "forked"
async def serve():
    manager = AsyncKernelManager()
    await manager.start_kernel()
    print(OwnParent.instance().pid, manager.provisioner.process.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(serve())
"""


def test_parent_and_kernels_end_with_a_server_that_is_killed():
    from tests.kernels.conftest import CLASS

    server = subprocess.Popen([sys.executable, "-c", _SERVER, CLASS], stdout=subprocess.PIPE, text=True)
    with server:
        pids = [int(word) for word in server.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(lives, pids))
        server.kill()
    until(lambda: not any(map(lives, pids)))


def test_the_entry_point_names_the_provisioner():
    from tests.kernels.conftest import CLASS, NAME

    settings = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert f'[project.entry-points."jupyter_client.kernel_provisioners"]\n{NAME} = "{CLASS}"\n' in settings
