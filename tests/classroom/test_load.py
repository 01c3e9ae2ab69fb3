"""Simulated learners do what learners do, and what is found of them is kept and shown."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from classroom.load import command, lesson, machine, page, recording
from classroom.load.hub import DemoHub, Hub
from classroom.load.klass import Class, ClassFound, LessonFound, Waits, waits
from classroom.load.learner import BrokenError, Learner
from classroom.load.server import Server

pytestmark = [
    pytest.mark.usefixtures("no_loop_runs"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it"),
]

PLAY = """
from amp_lessons.views.base.controls import Slider
moved = []
slider = Slider("x", 0, 3, 3)
slider.observe(lambda change: moved.append(change["new"]), "value")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("lessons"), forked=True) as server:
        yield server


def test_three_learners_with_lesson_03(server):
    """The small form of what ``make classroom-load`` does."""

    async def run() -> ClassFound:
        async with Class(lesson.read("03"), _joining(server), server.pid) as room:
            return await room.grow(3)

    found = asyncio.run(run())
    assert (found.errors, found.broke) == ((), ())
    assert found.learners == found.start.count == found.run.count == found.check.count == 3
    assert found.move.count == 9
    assert found.check.longest_s > 0
    assert 50 < found.kernel_mib < 1000
    assert found.parent_mib > 50, "kernels were forked, and the process that forks them was found"
    assert found.kernel_processor_s > 1


def _joining(server):
    async def join(number):
        return Learner(server.url, server.token)

    return join


def test_a_move_reaches_the_slider_and_an_error_is_told(server):
    async def run():
        async with Learner(server.url, server.token) as learner:
            await learner.open()
            assert await learner.ask("__import__('os').getpid()") == learner.pid
            await learner.run(PLAY, 60)
            for _ in range(3):
                await learner.move(next(iter(learner.sliders)), 60)
            failed = await learner.run("1 / 0", 60)
            return await learner.ask("moved"), failed.error

    moved, error = asyncio.run(run())
    assert moved == [2, 3, 2]
    assert error == "ZeroDivisionError: division by zero"


def test_the_death_of_a_kernel_is_told_to_whoever_waits(server):
    async def run():
        async with Learner(server.url, server.token) as learner:
            await learner.open()
            running = asyncio.ensure_future(learner.run("import time; time.sleep(600)", 60))
            await asyncio.sleep(0)
            os.kill(learner.pid, signal.SIGKILL)
            await running

    with pytest.raises(BrokenError, match="the kernel died"):
        asyncio.run(run())


def test_a_learner_comes_in_through_a_hub():
    pytest.importorskip("jupyterhub")
    pytest.importorskip("configurable_http_proxy")
    if os.geteuid() != 0:
        pytest.skip("the course's hub gives learners accounts of their own where root starts it")

    async def run(hub):
        async with await hub.join(0) as learner:
            await learner.open()
            with pytest.raises(BrokenError, match="has 1 learners"):
                await hub.join(1)
            return await learner.ask("6 * 7")

    with DemoHub(1) as demo:
        assert asyncio.run(run(demo.hub)) == 42


def test_a_file_that_is_none_of_a_hub_is_told(tmp_path):
    path = tmp_path / "running.json"
    path.write_text('{"url": "http://127.0.0.1:1"}')
    with pytest.raises(ValueError, match="should hold"):
        Hub.read(path)


def test_a_wrong_token_is_told(server):
    with pytest.raises(BrokenError, match="403"):
        asyncio.run(Learner(server.url, "wrong").open())


def test_a_lesson_is_read_with_its_last_exercise():
    read = lesson.read("03")
    assert read.check == 'views.check("loss_scaler", LossScaler)'
    assert "class LossScaler" in read.solution
    assert sum(cell == read.check for cell in read.cells) == 1
    with pytest.raises(ValueError, match="choose one of 00, 01"):
        lesson.read("77")


FOUND = ClassFound(2, "03", *[Waits(2, 1.5, 2.5)] * 4, kernel_mib=200.0, server_mib=90.0, broke=("it broke",))
ALONE = LessonFound("03", 1.0, 12.0, 36.0, 350.0, 400.0, 9.5)


def test_a_recording_is_read_back_as_it_was_and_damage_is_told(tmp_path):
    made = recording.Recording(recording.setup("forked", "own server"))
    for name, found in (("03 with 2", FOUND), ("03 alone", ALONE)):
        made = made.with_part(recording.Part(name, "2026-11-22T10:00:00+00:00", 9.0, 0.5, 3.0, found))
    path = recording.path_for(tmp_path, made.setup)
    recording.write(path, made)
    assert recording.read(path) == made
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match="no readable recording"):
        recording.read(path)
    assert recording.resumed(path, made.setup) == recording.Recording(made.setup)
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_the_page_says_what_was_found_and_how_busy_the_machine_was(tmp_path):
    part = recording.Part("03 with 2", "2026-11-22T10:00:00+00:00", 9.0, 0.5, 3.0, FOUND)
    made = recording.Recording(recording.setup("forked", "own server")).with_part(part)
    written = tmp_path / "README.md"
    written.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.write([made], written)
    text = written.read_text()
    assert "| 2 with lesson 03 | 1.5 to 2.5 s | 1.5 to 2.5 s | 1.5 to 2.5 s (2 at once) |" in text
    assert "others took 50% of the processors" in text
    assert "03 with 2: it broke" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")


def test_the_shipped_page_is_what_the_recordings_say(tmp_path):
    copy = tmp_path / "README.md"
    copy.write_text(page.PAGE.read_text("utf-8"), "utf-8")
    page.write(list(recording.all_in(recording.FOLDER)), copy)
    assert copy.read_text("utf-8") == page.PAGE.read_text("utf-8"), "python -m classroom.load.page"


def test_what_is_known_is_not_measured_again(tmp_path, capsys):
    here = recording.setup("ordinary", "own server")
    part = recording.Part("03 alone", "2026-11-22T10:00:00+00:00", 9.0, 0.5, 3.0, ALONE)
    recording.write(recording.path_for(tmp_path, here), recording.Recording(here).with_part(part))
    assert command.main(["--levels", "--alone", "03", "--out", str(tmp_path)]) == 0
    assert command.main(["--levels", "--alone", "04", "--minutes", "0", "--out", str(tmp_path)]) == 0
    assert "Left for the next call: 04 alone." in capsys.readouterr().out
    assert json.loads(next(tmp_path.glob("*.json")).read_text())["parts"][0]["name"] == "03 alone"


def test_no_more_learners_come_than_memory_bears(tmp_path, capsys):
    assert command.main(["--levels", "1", "--alone", "--leave-gib", "9999", "--out", str(tmp_path)]) == 0
    assert "Left for the next call: 03 with 1." in capsys.readouterr().out


def test_processes_are_measured():
    here = os.getpid()
    assert here in machine.family(os.getppid())
    assert 1 < machine.share_mib(here) < machine.total_mib()
    assert machine.processor_s(here) > 0
    assert machine.share_mib(2**22 + 1) == machine.processor_s(2**22 + 1) == 0
    assert waits([3.0, 1.0, 2.0]) == Waits(3, 2.0, 3.0)
    assert waits([]) is None
