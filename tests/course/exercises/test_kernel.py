"""Checks in a real Jupyter kernel, which has threads of its own: interrupts, ``exit()``, notebook code."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

PREPARE = """
import time, os, torch
from amp_lessons import exercises
solution = exercises.solution("largest_safe_scale").function
def endless(gradients):
    torch.set_default_dtype(torch.float64)
    open(os.environ["AMP_LESSONS_HOME"] + "/begun", "w").close()
    while True:
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMP_LESSONS_HOME", str(home))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
        running, client = manager.start_new_kernel(kernel_name="python3")
    try:
        assert run(client, PREPARE) == ("ok", "")
        yield running, client, home / "begun"
    finally:
        client.stop_channels()
        running.shutdown_kernel(now=True)


def run(client, code, when_busy=None):
    """Run a cell; return the status of the reply (or the exception's name) and what it printed."""
    printed = []
    message = client.execute(code)
    if when_busy:
        when_busy()
    for io in messages(client.get_iopub_msg, message):
        if io["msg_type"] == "stream":
            printed.append(io["content"]["text"])
        if io["msg_type"] == "status" and io["content"]["execution_state"] == "idle":
            break
    reply = next(messages(client.get_shell_msg, message))["content"]
    return reply.get("ename") or reply["status"], "".join(printed)


def messages(receive, request):
    """Receive the messages about one request: a kernel that started slowly still answers older ones."""
    while True:
        message = receive(timeout=60)
        if message["parent_header"].get("msg_id") == request:
            yield message


def test_notebook_code_is_checked(kernel):
    _, client, _ = kernel
    cell = "print(exercises.check('largest_safe_scale', solution).status)"
    assert run(client, cell) == ("ok", "passed\n")


def test_interrupting_the_kernel_stops_the_check(kernel):
    running, client, begun = kernel

    def interrupt():
        while not begun.exists():
            time.sleep(0.05)
        running.interrupt_kernel()

    started = time.monotonic()
    status, _ = run(client, "exercises.check('largest_safe_scale', endless, time_limit_s=30)", interrupt)
    begun.unlink()
    assert status == "KeyboardInterrupt"
    assert time.monotonic() - started < 20
    assert run(client, "print(torch.get_default_dtype(), torch.get_num_threads() > 0)") == (
        "ok",
        "torch.float32 True\n",
    )


def test_exit_in_a_notebook_does_not_end_the_kernel(kernel):
    """There ``exit`` is IPython's: it raises nothing, and asks the kernel to end after the cell."""
    running, client, _ = kernel
    status, printed = run(
        client,
        "def leaving(gradients):\n    exit()\n    return 1.0\n"
        "print(exercises.check('largest_safe_scale', leaving).findings[0].code)",
    )
    assert (status, printed) == ("ok", "raised\n")
    assert run(client, "print('alive')") == ("ok", "alive\n")
    assert running.is_alive()


def test_a_helper_with_a_cache_is_taken_along(kernel):
    _, client, _ = kernel
    cell = """
import functools
@functools.lru_cache(maxsize=7)
def helper():
    return solution
def cached(gradients):
    helper(), helper()
    return helper()(gradients) if helper.cache_info()[1:] == (1, 7, 1) else 0.0
print(exercises.check('largest_safe_scale', cached).status)
"""
    assert run(client, cell) == ("ok", "passed\n")
