"""Work beside the kernel: of several requests only the latest counts."""

import asyncio
import threading

import pytest

from amp_lessons.course.views.base import latest
from amp_lessons.course.views.base.latest import Latest

pytestmark = pytest.mark.usefixtures("no_loop_runs")


@pytest.fixture
def delivered():
    return []


@pytest.fixture
def worker(delivered, monkeypatch):
    monkeypatch.setattr(latest, "_QUIET_S", 0.01)
    return Latest(delivered.append)


def test_asking_does_not_wait_and_everything_that_is_found_is_delivered_in_order(worker, delivered):
    go_on = threading.Event()

    def slow(ticket):
        go_on.wait()
        yield from (1, 2)

    worker.ask(slow)
    assert delivered == []
    go_on.set()
    worker.wait()
    assert delivered == [1, 2]


def test_of_several_in_a_row_only_the_last_is_begun(worker, delivered, monkeypatch):
    monkeypatch.setattr(latest, "_QUIET_S", 0.5)
    begun = []

    def numbered(number):
        def work(ticket):
            begun.append(number)
            yield number

        return work

    for number in range(5):
        worker.ask(numbered(number))
    worker.wait()
    assert (begun, delivered) == ([4], [4])


def test_what_was_begun_is_given_up_and_never_delivered(worker, delivered):
    begun, go_on = threading.Event(), threading.Event()
    went_on = []

    def overtaken(ticket):
        begun.set()
        go_on.wait()
        yield "too late"
        ticket.check()
        went_on.append("no")

    worker.ask(overtaken)
    begun.wait()
    worker.ask(lambda ticket: iter(["new"]))
    go_on.set()
    worker.wait()
    assert (delivered, went_on) == (["new"], [])


def test_an_exception_is_handed_over_and_the_next_work_runs(worker, delivered):
    def wrong(ticket):
        yield "half"
        raise KeyError("x")

    worker.ask(wrong)
    worker.wait()
    worker.ask(lambda ticket: iter(["fine"]))
    worker.wait()
    assert [str(each) for each in delivered] == ["half", "'x'", "fine"]


def test_a_running_loop_delivers_in_its_own_thread_without_waiting(worker):
    threads = []
    worker._deliver = lambda result: threads.append((result, threading.current_thread()))

    async def learner():
        worker.ask(lambda ticket: iter(["soon"]))
        for _ in range(200):
            if threads:
                break
            await asyncio.sleep(0.01)

    asyncio.run(learner())
    assert threads == [("soon", threading.current_thread())]
