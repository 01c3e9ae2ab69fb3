"""Whatever a learner's code does, a check ends in a report, in time, and changes nothing else."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from amp_lessons import exercises
from amp_lessons.exercises import shelf
from amp_lessons.exercises.containment import isolation, sandbox, time_limit
from tests.real_clock import real_clock

pytestmark = pytest.mark.slow

LIMIT_S = 0.4
MOST_S = time_limit.PATIENCE * LIMIT_S + 1.5  # by the clock, with what ending and reporting take
WAYS = [
    pytest.param("fork", marks=pytest.mark.skipif(not isolation.can_fork(), reason="no fork here")),
    "inprocess",
]
both_ways = pytest.mark.parametrize("way", WAYS)
forked = pytest.mark.skipif(not isolation.can_fork(), reason="only a child process holds this")


def check(code, way, limit_s=5.0, id="largest_safe_scale"):
    return exercises.check(id, code, isolation=way, time_limit_s=limit_s)


def state():
    """Everything that a check must leave as it was."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "autocast": [
            (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d), torch.is_autocast_cache_enabled())
            for d in ("cpu", "cuda")
        ],
        "nesting": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "torch random": torch.get_rng_state().tolist(),
        "python random": random.getstate(),
        "numpy random": np.random.get_state()[1].tolist(),
        "gradients": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "torch threads": torch.get_num_threads(),
        "scaler": {name: id(value) for name, value in vars(torch.amp.GradScaler).items() if callable(value)},
        "autocast class": {n: id(v) for n, v in vars(torch.autocast).items() if callable(v)},
        "tensor": {name: id(value) for name, value in vars(torch.Tensor).items() if callable(value)},
        "module": {name: id(value) for name, value in vars(torch.nn.Module).items() if callable(value)},
        "optimizer": {
            name: id(value) for name, value in vars(torch.optim.Optimizer).items() if callable(value)
        },
        "functional": {n: id(v) for n, v in vars(torch.nn.functional).items() if callable(v)},
        "builtins": {name: id(value) for name, value in vars(builtins).items()},
        "os": {name: id(value) for name, value in vars(os).items() if callable(value)},
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "warnings": list(warnings.filters),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGURG)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "tracing": (sys.gettrace(), sys.getprofile()),
        "folder": os.getcwd(),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "recursion": sys.getrecursionlimit(),
        "collecting": gc.isenabled(),
        "python threads": {thread.ident for thread in threading.enumerate()},
    }


@pytest.fixture(scope="module")
def loaded():
    """Load what the first check loads, once."""
    check(exercises.solution("largest_safe_scale").function, "auto")


@pytest.fixture
def unchanged(loaded):
    """Compare the state after the test with the one before it."""
    before = state()
    yield
    deadline = time.monotonic() + 2  # a thread that was told to end needs a moment
    while threading.active_count() > len(before["python threads"]) and time.monotonic() < deadline:
        time.sleep(0.01)
    after = state()
    assert {key: value for key, value in after.items() if value != before[key]} == {}


def loops_for_ever(gradients):
    while True:
        pass


def sleeps_for_ever(gradients):
    time.sleep(1000)


def waits_for_a_lock(gradients):
    threading.Event().wait(1000)


def swallows_every_exception(gradients):
    while True:
        try:
            time.sleep(0.01)
            len(gradients)
        except BaseException:
            len(gradients)


def swallows_in_loops_in_loops(gradients):
    while True:
        try:
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    continue
        except BaseException:
            continue


def swallows_and_starts_again(gradients):
    try:
        swallows_in_loops_in_loops(gradients)
    except BaseException:
        swallows_and_starts_again(gradients)


def swallows_around_a_call(gradients):
    def body():
        while True:
            with contextlib.suppress(BaseException):
                len(gradients)

    while True:
        try:
            body()
        except BaseException:
            continue


def iterates_for_ever(gradients):
    return max(float(n) for n in iter(int, 1))


def ignores_the_signal(gradients):
    signal.signal(signal.SIGURG, signal.SIG_IGN)  # it would wake this code if it slept
    loops_for_ever(gradients)


def raises_what_never_tells(gradients):
    class EndlessError(Exception):
        def __str__(self):
            loops_for_ever(gradients)

    raise EndlessError


@pytest.mark.few(3)
@real_clock
@both_ways
@pytest.mark.parametrize(
    "code",
    [
        loops_for_ever,
        sleeps_for_ever,
        waits_for_a_lock,
        iterates_for_ever,
        ignores_the_signal,
        raises_what_never_tells,
    ],
)
def test_endless_code_is_stopped_in_time(code, way, unchanged):
    started = time.monotonic()
    report = check(code, way, LIMIT_S)
    assert time.monotonic() - started < MOST_S
    assert report.findings[0].code == "time_limit"
    assert f"after {LIMIT_S} seconds" in report.findings[0].message
    assert report.status == "not passed"


@real_clock
@forked
@pytest.mark.parametrize(
    "code",
    [
        swallows_every_exception,
        swallows_in_loops_in_loops,
        swallows_and_starts_again,
        swallows_around_a_call,
    ],
)
def test_code_that_catches_everything_is_stopped_in_time(code, unchanged):
    started = time.monotonic()
    report = check(code, "fork", LIMIT_S)
    assert time.monotonic() - started < MOST_S
    assert report.findings[0].code == "time_limit"


@pytest.mark.parametrize(
    ("passed_s", "used_s", "left_s"),
    [
        (9.0, 9.0, 1.0),
        (12.0, 40.0, -2.0),  # by four threads
        (5.0, 40.0, 5.0),  # never before the limit by the clock
        (25.0, 6.0, 4.0),  # a busy machine
        (29.0, 6.0, 1.0),
        (31.0, 0.0, -1.0),  # it sleeps
    ],
)
def test_a_deadline_counts_processor_time_and_waits_three_times_as_long(
    passed_s, used_s, left_s, monkeypatch
):
    now = {"clock": 100.0, "processor": 7.0}
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now["clock"])
    deadline = time_limit.Deadline(10.0, lambda: now["processor"])
    assert deadline.left_s == 10.0
    now["clock"] += passed_s
    now["processor"] += used_s
    assert deadline.left_s == pytest.approx(left_s)
    assert deadline.passed == (left_s <= 0)


@both_ways
def test_who_waits_longer_than_the_limit_is_not_stopped_at_once(way):
    assert isolation.run(lambda: time.sleep(1.1), 1.0, way).ending == "finished"


@pytest.fixture
def full_load():
    """Run four programs for each core, all of them busy."""
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * (os.cpu_count() or 1))
    ]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.thorough
@pytest.mark.parametrize("id", ["train_with_amp", "ddp_step"])  # the second runs on ranks
def test_a_right_attempt_beside_a_full_load_of_other_work_is_not_refused(id, full_load):
    report = exercises.check(id, exercises.solution(id).function)
    assert report.passed, report


@real_clock
@both_ways
def test_time_limit_names_the_line(way):
    assert "while True" in check(loops_for_ever, way, LIMIT_S).findings[0].message


@pytest.mark.few
@both_ways
@pytest.mark.parametrize(
    ("call", "spelling"),
    [
        (lambda: exit(), "exit()"),
        (lambda: quit(3), "quit()"),
        (lambda: os._exit(0), "os._exit()"),
        (lambda: os.abort(), "os.abort()"),
        (lambda: os.fork(), "os.fork()"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "os.kill()"),
        (lambda: signal.alarm(1), "signal.alarm()"),
        (lambda: signal.setitimer(signal.ITIMER_REAL, 1), "signal.setitimer()"),
        (lambda: os.execv(sys.executable, [sys.executable, "-c", ""]), "os.execv()"),
        (lambda: input("name? "), "input()"),
        (lambda: breakpoint(), "breakpoint()"),
    ],
)
def test_calls_that_end_or_block_the_process_are_refused(call, spelling, way, unchanged):
    def code(gradients):
        try:
            call()
        except BaseException:  # swallowing the refusal does not help
            return 65536.0

    report = check(code, way)
    assert report.findings[0].code == "ends_or_blocks_the_process"
    assert spelling in report.findings[0].message


@pytest.mark.few
@both_ways
@pytest.mark.parametrize(
    "error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError("too much")]
)
def test_any_exception_is_a_finding(error, way, unchanged):
    def code(gradients):
        raise error

    report = check(code, way)
    assert report.findings[0].code == "raised"
    assert type(error).__name__ in report.findings[0].message


@both_ways
def test_endless_recursion_is_a_finding(way, unchanged):
    def code(gradients):
        return code(gradients)

    assert "RecursionError" in check(code, way).findings[0].message


@both_ways
def test_exception_whose_text_raises_is_a_finding(way, unchanged):
    class NastyError(Exception):
        def __str__(self):
            raise ValueError("no text")

    def code(gradients):
        raise NastyError

    report = check(code, way)
    assert report.status == "not passed"
    assert "Nasty" in report.findings[0].message


class Unprintable:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.few
@both_ways
@pytest.mark.parametrize(
    "value", [None, float("nan"), "text", object(), [], {}, 1j, Unprintable(), type, ...]
)
def test_rubbish_is_a_finding(value, way, unchanged):
    report = check(lambda gradients: value, way)
    assert report.status == "not passed"
    assert report.findings[0].code in ("wrong_return_type", "not_a_scale")


RUBBISH = [None, 3, "train", [], object(), torch.zeros(2), Unprintable(), lambda: None]
CATALOG = [exercise.id for exercise in (*exercises.catalog(), *shelf.interview_tasks())]


@pytest.mark.few
@pytest.mark.parametrize("attempt", RUBBISH)
def test_rubbish_instead_of_an_attempt_is_a_finding(attempt):
    for way, id in [("inprocess", id) for id in CATALOG] + [("auto", "largest_safe_scale")]:
        report = check(attempt, way, id=id)
        assert not report.passed, report
        assert report.findings[0].code != "checker_failed", report
        assert str(report)


def leaves_everything_changed(gradients):
    torch.set_default_dtype(torch.float64)
    torch.autocast("cpu", dtype=torch.float16).__enter__()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    torch.autograd.set_detect_anomaly(True)
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    warnings.simplefilter("error")
    os.environ["AMP_TEST"] = "1"
    os.chdir("/")
    sys.stdout = sys.__stdout__
    sys.setrecursionlimit(5000)
    gc.disable()
    torch.set_default_device("meta")
    return 1.0


@both_ways
def test_settings_are_put_back(way, unchanged):
    report = check(leaves_everything_changed, way)
    assert report.findings[0].code == "leaves_state_behind"
    for word in ("default dtype", "autocast", "gradients switched off", "default device"):
        assert word in report.findings[0].message


def patches_everything(gradients):
    torch.amp.GradScaler.step = lambda self, optimizer: optimizer.step()
    torch.Tensor.backward = lambda self: None
    torch.nn.functional.linear = lambda *a: None
    torch.nn.Module.__call__ = lambda self, x: x
    torch.cuda.amp.GradScaler.update = lambda self: None
    torch.autocast = None
    builtins.len = lambda x: 0
    return 1.0


@both_ways
def test_patches_are_undone_and_named(way, unchanged):
    report = check(patches_everything, way)
    assert report.findings[0].code == "patches_torch"
    assert check(exercises.solution("largest_safe_scale").function, way).passed


@both_ways
def test_a_megabyte_of_output_is_cut(way, unchanged, capfd):
    def code(gradients):
        for _ in range(1000):
            print("x" * 1000)
            print("y" * 100, file=sys.stderr)
        return exercises.solution("largest_safe_scale").function(gradients)

    report = check(code, way)
    assert report.passed
    assert [f.code for f in report.findings if f.kind == "note"] == ["prints_a_lot"]
    assert len(report.printed) < 5000
    assert capfd.readouterr() == ("", "")


@both_ways
def test_output_is_shown(way):
    def code(gradients):
        print("largest:", 3.5)
        return 0.0

    assert "largest: 3.5" in check(code, way).printed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@both_ways
def test_a_thread_left_running_does_not_outlive_the_check(way, unchanged):
    def work():
        while True:
            time.sleep(0.01)

    def code(gradients):
        threading.Thread(target=work, daemon=True).start()
        return exercises.solution("largest_safe_scale").function(gradients)

    assert check(code, way).passed


@both_ways
def test_a_check_within_a_check(way, unchanged):
    right, inner = exercises.solution("largest_safe_scale").function, []

    def code(gradients):
        if not inner:
            inner.append(exercises.check("largest_safe_scale", right).passed)
        return right(gradients) if inner[0] else 0.0

    assert check(code, way).passed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@both_ways
def test_a_check_in_a_thread_of_the_code_waits(way, unchanged):
    """Two checks at once would capture each other's output; but this one waits for its thread."""

    def code(gradients):
        thread = threading.Thread(target=check, args=(_right, "auto"), daemon=True)
        thread.start()
        thread.join()
        return _right(gradients)

    assert check(code, way, LIMIT_S).findings[0].code == "time_limit"


def test_off_the_main_thread(unchanged):
    reports = []

    def work():
        reports.append(check(loops_for_ever, "inprocess", limit_s=0.3))
        reports.append(check(exercises.solution("largest_safe_scale").function, "auto"))

    # a daemon: if the code is not stopped, only this test fails
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert [report.findings[0].code for report in reports] == ["time_limit", "safe"]


@forked
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: ctypes.string_at(0), "signal 11"),
        (lambda: ctypes.CDLL(None)._exit(3), "exit code 3"),
        (lambda: ctypes.CDLL(None).abort(), "signal 6"),
    ],
)
def test_a_crash_is_a_finding(call, word, unchanged):
    report = check(lambda gradients: call(), "fork")
    assert report.findings[0].code == "process_ended"
    assert word in report.findings[0].message


AFTER_FAKE_TENSORS = """
import torch
from amp_lessons import autocast
from amp_lessons.exercises.containment import isolation

with autocast.fake_tensors():
    torch.ones(2)
torch.ones(2, requires_grad=True).sum().backward()
print(isolation._run_in_child(lambda: None, 10).ending)
"""


@pytest.mark.thorough
@forked
def test_a_child_can_use_pytorch_after_fake_tensors():
    # where PyTorch is built for CUDA and has no GPU, autograd must have started before them
    done = subprocess.run([sys.executable, "-c", AFTER_FAKE_TENSORS], capture_output=True, text=True)
    assert done.stdout == "finished\n", done.stderr


@real_clock
@forked
def test_a_loop_in_c_is_stopped(unchanged):
    libc = ctypes.PyDLL(None)  # holds the interpreter's lock, as an extension in a loop would
    started = time.monotonic()
    report = check(lambda gradients: libc.sleep(1000), "fork", LIMIT_S)
    assert report.findings[0].code == "time_limit"
    assert time.monotonic() - started < MOST_S


_real_fork, _real_exit, _real_kill = os.fork, os._exit, os.kill


@forked
def test_a_real_fork_reports_once_and_leaves_no_process(tmp_path, unchanged):
    def code(gradients):
        child = _real_fork()
        if child == 0:
            (tmp_path / "copy").write_text(str(os.getpid()))
            time.sleep(1000)
        while not (tmp_path / "copy").exists():
            time.sleep(0.01)
        return exercises.solution("largest_safe_scale").function(gradients)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # one copy for each of the ten calls would be slow, so only the first forks
        first = [True]
        report = check(lambda g: code(g) if first and first.pop() else _right(g), "fork")
    assert report.passed
    copy = int((tmp_path / "copy").read_text())
    deadline = time.monotonic() + 2
    while _runs(copy) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(copy)


def _right(gradients):
    return exercises.solution("largest_safe_scale").function(gradients)


def _runs(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


@forked
def test_a_copy_that_returns_does_not_report(unchanged):
    """The copy goes on with the check and would write a second report; only the original may."""
    parents = []

    def code(gradients):
        if not parents:
            parents.append(os.getpid())
            _real_fork()
        return _right(gradients) if os.getpid() == parents[0] else 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert check(code, "fork").passed


@forked
def test_exit_by_a_captured_reference(unchanged):
    report = check(lambda gradients: _real_exit(5), "fork")
    assert report.findings[0].code == "process_ended"
    assert "exit code 5" in report.findings[0].message


@forked
def test_exit_is_told_though_a_copy_goes_on(unchanged):
    def code(gradients):
        if _real_fork() == 0:
            time.sleep(1000)
        _real_exit(3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = check(code, "fork", LIMIT_S)
    assert "exit code 3" in report.findings[0].message


@forked
def test_a_process_that_has_stopped_is_ended(unchanged):
    report = check(lambda gradients: _real_kill(os.getpid(), signal.SIGSTOP), "fork", LIMIT_S)
    assert report.findings[0].code == "time_limit"


@forked
def test_a_child_that_cannot_use_pytorch_is_replaced_by_this_process(monkeypatch, unchanged):
    def broken():
        raise RuntimeError("no PyTorch after a fork")

    monkeypatch.setattr(isolation, "_prove_that_pytorch_works", broken)
    assert check(exercises.solution("largest_safe_scale").function, "fork").passed


@both_ways
@pytest.mark.parametrize("swallows", [False, True])
def test_the_users_interrupt_gets_through_and_restores(way, swallows, unchanged):
    """As Jupyter does it: SIGINT to this process while the check runs."""

    def code(gradients):
        torch.set_default_dtype(torch.float64)
        while True:
            try:
                time.sleep(0.01)
            except KeyboardInterrupt:
                if not swallows:
                    raise
                return 1.0

    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        check(code, way, limit_s=10)
    assert time.monotonic() - started < 3
    timer.join()


@pytest.mark.thorough
@real_clock
@both_ways
def test_interrupts_at_any_moment_restore_everything(way, unchanged):
    """Interrupt whole checks at moments spread over their duration, wherever they are."""
    attempt = exercises.solution("largest_safe_scale").function
    started = time.monotonic()
    check(attempt, way)
    duration_s = time.monotonic() - started
    interrupted = 0
    for part in range(12):
        timer = threading.Timer(duration_s * part / 12, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            assert check(attempt, way).passed
            timer.join()  # the check was faster than the timer: the interrupt arrives here
            time.sleep(1)
        except KeyboardInterrupt:
            interrupted += 1
            timer.join()
        assert not sandbox.active()
    assert interrupted == 12


def test_unusual_limits_are_refused():
    for limit in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="time_limit_s"):
            exercises.check("largest_safe_scale", None, time_limit_s=limit)


@real_clock
def test_a_running_timer_of_someone_else_goes_on():
    rang = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(time.monotonic()))
    started = time.monotonic()
    timer = signal.setitimer(signal.ITIMER_REAL, 0.8)
    try:
        check(exercises.solution("largest_safe_scale").function, "inprocess")
        while not rang and time.monotonic() - started < 3:
            time.sleep(0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
    assert 0.7 < rang[0] - started < 2


@forked
def test_no_child_is_left_behind():
    before = _children()
    check(exercises.solution("largest_safe_scale").function, "fork")
    check(loops_for_ever, "fork", LIMIT_S)
    assert _children() == before


def _children():
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,comm="], capture_output=True, text=True
    )
    return sorted(line for line in listed.stdout.splitlines() if " ps" not in line)


@forked
def test_threads_of_a_forked_check_may_begin_to_compute_at_once():
    """PyTorch makes its threads anew after a fork, and of two threads that do it at once, one may fail."""
    many = torch.ones(400_000)
    threads_before = torch.get_num_threads()

    def job():
        together, errors = threading.Barrier(8), []

        def compute():
            together.wait()
            try:
                (many + many).sum()
            except RuntimeError as error:
                errors.append(str(error))

        threads = [threading.Thread(target=compute) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    torch.set_num_threads(1)  # the number a check has: with another one, setting it makes them anew already
    try:
        assert [isolation.run(job, 5.0, "fork").value for _ in range(8)] == [[]] * 8
    finally:
        torch.set_num_threads(threads_before)
