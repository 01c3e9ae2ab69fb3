"""Simulated learners do what learners do, and what is found of them is kept and shown."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import asdict

import pytest

from classroom.load import __main__ as command
from classroom.load import klass, places, recording
from classroom.load.klass import Class, ClassFound, Waits, waits
from classroom.load.learner import BrokenError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("no_loop_runs"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read as Linux tells it"),
]

PLAY = """
from amp_lessons.course.views.base.controls import Slider
moved = []
slider = Slider("x", 0, 3, 3)
slider.observe(lambda change: moved.append(change["new"]), "value")
"""


@pytest.fixture(scope="module")
def server():
    with ExitStack() as stack:
        yield places.entered(None, 0, stack)


@pytest.mark.thorough
def test_three_learners_with_lesson_03(server):
    """The small form of what ``make classroom-load`` does."""

    async def run() -> ClassFound:
        async with Class(klass.read("03"), server.join, server.pid) as room:
            return await room.grow(3)

    found = asyncio.run(run())
    assert (found.errors, found.broke) == ((), ())
    assert found.learners == found.start.count == found.run.count == found.check.count == 3
    assert found.move.count == 9
    assert found.check.longest_s > 0
    assert 50 < found.kernel_mib < 1000
    assert 20 < found.server_mib < 1000
    assert found.kernel_processor_s > 1


@pytest.mark.thorough
def test_a_move_reaches_the_slider_and_an_error_is_told(server):
    async def run():
        async with await server.join(0) as learner:
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


@pytest.mark.thorough
def test_the_death_of_a_kernel_is_told_to_whoever_waits(server):
    async def run():
        async with await server.join(0) as learner:
            await learner.open()
            running = asyncio.ensure_future(learner.run("import time; time.sleep(600)", 60))
            await asyncio.sleep(0)
            os.kill(learner.pid, signal.SIGKILL)
            await running

    with pytest.raises(BrokenError, match="the kernel died"):
        asyncio.run(run())


def test_a_file_that_is_none_of_a_hub_is_told(tmp_path):
    path = tmp_path / "hub.json"
    path.write_text('{"url": "http://127.0.0.1:1"}')
    with pytest.raises(ValueError, match="should hold"):
        places.entered(str(path), 1, ExitStack())


def test_a_lesson_is_read_with_its_last_exercise():
    read = klass.read("03")
    (*_, last) = (cell for cell in read.cells if cell.startswith("views.check("))
    assert read.check == last
    assert last.split(", ")[1].rstrip(")") in read.solution
    assert sum(cell == read.check for cell in read.cells) == 1
    with pytest.raises(ValueError, match="choose one of 00, 01"):
        klass.read("77")


FOUND = ClassFound(2, "03", *[Waits(2, 1.5, 2.5)] * 4, kernel_mib=200.0, server_mib=90.0, broke=("it broke",))
PART = {"name": "03 with 2", "at": "2026-11-22T10:00:00+00:00", "seconds": 9.0, "others": 0.5}
PART |= {"available_gib": 3.0, "found": asdict(FOUND)}


def test_what_was_found_is_kept_shown_and_replaced_and_damage_is_told(tmp_path):
    here = recording.setup("own server")
    path, written = recording.path_for(tmp_path, here), tmp_path / "README.md"
    recording.add(path, here, PART | {"seconds": 1.0})
    recording.add(path, here, PART)
    assert [part["seconds"] for part in json.loads(path.read_text())["parts"]] == [9.0]
    written.write_text(f"before\n{recording.BEGIN}\nold\n{recording.END}\nafter\n")
    recording.write_page(tmp_path, written)
    text = written.read_text()
    assert "| 2 with lesson 03 | 1.5 to 2.5 s | 1.5 to 2.5 s | 1.5 to 2.5 s (2 at once) |" in text
    assert "| 0.5 GiB | 2026-11-22; others took 50% of the processors |" in text
    assert "03 with 2: it broke" in text
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match="no readable recording"):
        recording.add(path, here, PART)


def test_the_shipped_page_is_what_the_recordings_say(tmp_path):
    copy = tmp_path / "README.md"
    copy.write_text(recording.PAGE.read_text("utf-8"), "utf-8")
    recording.write_page(page=copy)
    assert copy.read_text("utf-8") == recording.PAGE.read_text("utf-8"), "python -m classroom.load.recording"


def test_no_more_learners_come_than_memory_bears(tmp_path, capsys):
    assert command.main(["--levels", "1", "--leave-gib", "9999", "--out", str(tmp_path)]) == 1
    assert "9999 GiB are not touched" in capsys.readouterr().out


def test_processes_are_measured():
    here, gone = os.getpid(), 2**22 + 1
    assert here in klass.family(os.getppid())
    assert klass.share_mib([here]) > 1
    assert klass.processor_s(here) > 0
    assert klass.share_mib([gone]) == klass.processor_s(gone) == 0
    assert klass.family(gone) == set()
    assert recording.Clock().part("03 with 2", FOUND)["others"] <= 1.0
    assert waits([3.0, 1.0, 2.0]) == Waits(3, 2.0, 3.0)
    assert waits([]) is None
