"""The learner's copy: whole or not there, brought up to date, and nothing of the learner's ever lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amp_lessons import lessons
from amp_lessons._base import files
from amp_lessons.course.lessons import own_copy

NAMES = ("00_start_here.ipynb", "01_number_formats.ipynb", "02_autocast.ipynb")


def notebook(*sources, outputs=(), **metadata):
    cells = [
        {"cell_type": "code", "id": f"cell{i}", "metadata": {}, "source": source, "outputs": list(outputs)}
        for i, source in enumerate(sources)
    ]
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def say(folder, text, name=NAMES[0]):
    (folder / name).write_text(notebook(text), encoding="utf-8")


def said(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"]


def seen(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix == ".ipynb")


PICTURE = {"text/plain": ["A loss\n", "of 2.3"], "image/png": "iVBORw0KGgo="}
VIEW = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": PICTURE}
PRINTED = {"output_type": "stream", "name": "stdout", "text": ["12 ms on my GPU\n"]}
# what the course once put where it now prints a line
TO_COME = {
    "output_type": "display_data",
    "metadata": {"amp_lessons_to_come": True},
    "data": {"text/markdown": "*Run this cell (Shift+Enter) to get a picture with controls.*"},
}
SHOWS_A_VIEW = notebook("views.LossScaleView(model)", outputs=[VIEW])


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "course" / "notebooks"
    folder.mkdir(parents=True)
    for name in NAMES:
        say(folder, f"{name}, version 1", name)
    return folder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "learner" / "my_lessons"


@pytest.fixture
def copy(folder, source):
    lessons.bring(folder, source)
    return folder


@pytest.fixture
def view_copy(folder, source):
    """A copy whose first lesson shows a view."""
    (source / NAMES[0]).write_text(SHOWS_A_VIEW)
    lessons.bring(folder, source)
    return folder


def test_the_first_visit_makes_a_copy_like_other_folders_of_the_learner(folder, source):
    assert lessons.bring(folder, source) == lessons.Brought(folder, made=True)
    assert lessons.is_copy(folder)
    assert [said(folder / name) for name in NAMES] == [f"{name}, version 1" for name in NAMES]
    assert os.listdir(folder.parent) == ["my_lessons"]
    (folder.parent / "other").mkdir()
    assert folder.stat().st_mode == (folder.parent / "other").stat().st_mode


def test_a_lesson_comes_with_nothing_run(view_copy):
    (cell,) = json.loads((view_copy / NAMES[0]).read_text())["cells"]
    assert cell["source"] == "views.LossScaleView(model)"
    (line,) = cell["outputs"]
    assert line["text"] == "Run this cell (Shift+Enter) to get a picture with controls."


def test_what_assistants_are_asked_comes_once_and_never_over_what_the_owner_has_done(
    folder, source, tmp_path
):
    lessons.bring(folder, source)
    asked = folder / "AGENTS.md"
    assert "leave the answer to the learner" in asked.read_text("utf-8")
    asked.unlink()
    lessons.bring(folder, source)
    assert not asked.exists()
    (tmp_path / "AGENTS.md").write_text("Mine.", "utf-8")
    lessons.bring(tmp_path, source)
    assert (tmp_path / "AGENTS.md").read_text("utf-8") == "Mine."


def test_a_second_visit_changes_nothing(copy, source):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*.*n*") if path.is_file()}
    assert lessons.bring(copy, source) == lessons.Brought(copy)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_untouched_lesson_gives_way_to_a_new_version(copy, source):
    say(source, "version 2")
    brought = lessons.bring(copy, source)
    assert brought.updated == (NAMES[0],)
    assert said(copy / NAMES[0]) == "version 2"
    assert seen(copy) == list(NAMES)


def test_a_touched_lesson_stays_and_the_new_version_is_beside_it(copy, source):
    say(copy, "my work")
    say(source, "version 2")
    say(source, "version 2 of the other", NAMES[1])
    brought = lessons.bring(copy, source)
    beside = copy / "00_start_here.new.ipynb"
    assert brought.beside == {NAMES[0]: beside}
    assert brought.updated == (NAMES[1],)
    assert (said(copy / NAMES[0]), said(beside)) == ("my work", "version 2")
    assert lessons.bring(copy, source) == lessons.Brought(copy)  # and it is told once


def test_the_third_version_replaces_the_second_unless_that_was_touched_too(copy, source):
    say(copy, "my work")
    for version in ("version 2", "version 3"):
        say(source, version)
        lessons.bring(copy, source)
    assert said(copy / "00_start_here.new.ipynb") == "version 3"
    say(copy, "more of my work", "00_start_here.new.ipynb")
    say(source, "version 4")
    lessons.bring(copy, source)
    assert said(copy / "00_start_here.new.ipynb") == "more of my work"
    assert said(copy / "00_start_here.new-2.ipynb") == "version 4"


def with_outputs(text, outputs):
    """A notebook whose cells show something else, as JupyterLab writes it, with its kernel's version."""
    content = json.loads(text)
    content["metadata"]["language_info"] = {"version": "3.99"}
    for cell in content["cells"]:
        cell |= {"outputs": outputs(cell["outputs"]), "execution_count": None, "source": [cell["source"]]}
    return json.dumps(content, indent=1) + "\n"


NOBODYS_WORK = {
    "as JupyterLab writes it": lambda lines: [{**each, "text": [each["text"]]} for each in lines],
    "cleared": lambda lines: [],
    "of an earlier version": lambda lines: [TO_COME],
}


@pytest.mark.parametrize("outputs", NOBODYS_WORK.values(), ids=NOBODYS_WORK)
def test_a_lesson_in_which_nothing_was_run_or_written_gives_way(view_copy, source, outputs):
    lesson = view_copy / NAMES[0]
    lesson.write_text(with_outputs(lesson.read_text(), outputs))
    assert lessons.bring(view_copy, source) == lessons.Brought(view_copy)
    say(source, "version 2")
    assert lessons.bring(view_copy, source).updated == (NAMES[0],)


LEARNERS = {
    "view run": with_outputs(SHOWS_A_VIEW, lambda _: [VIEW]),
    "printed": with_outputs(SHOWS_A_VIEW, lambda _: [PRINTED]),
    **{text: text for text in ("", "no JSON", "[]", '{"cells": 3}')},
}


@pytest.mark.parametrize("text", LEARNERS.values(), ids=LEARNERS)
def test_what_was_run_or_is_no_notebook_any_more_is_the_learners(view_copy, source, text):
    (view_copy / NAMES[0]).write_text(text)
    say(source, "version 2")
    assert list(lessons.bring(view_copy, source).beside) == [NAMES[0]]
    assert (view_copy / NAMES[0]).read_text() == text
    assert lessons.reset(view_copy, source, "00").kept.read_text() == text


# what the course's list says of SHOWS_A_VIEW where it was delivered as stored, before lessons came fresh
DELIVERED_AS_STORED = "93dd806536ba452dfe825d29524bc461abe314affc470f463d5d7ba5ac9fe223"


@pytest.mark.parametrize("was_run", [False, True])
def test_a_copy_that_came_with_outputs_gives_way_to_a_fresh_one_unless_it_was_run(view_copy, source, was_run):
    own_list = view_copy / ".amp-lessons" / "delivered.json"
    own_list.write_text(json.dumps({**json.loads(own_list.read_text()), NAMES[0]: DELIVERED_AS_STORED}))
    (view_copy / NAMES[0]).write_text(SHOWS_A_VIEW.replace("2.3", "2.4") if was_run else SHOWS_A_VIEW)
    brought = lessons.bring(view_copy, source)
    assert (list(brought.beside), brought.updated) == (([NAMES[0]], ()) if was_run else ([], (NAMES[0],)))
    assert ("2.4" in (view_copy / NAMES[0]).read_text()) == was_run
    assert not any("2.3" in path.read_text() for path in view_copy.glob("*.ipynb"))
    assert lessons.bring(view_copy, source) == lessons.Brought(view_copy)


@pytest.mark.parametrize("touched", [True, False])
def test_a_version_that_differs_in_what_is_stored_alone_brings_nothing(view_copy, source, touched):
    if touched:
        say(view_copy, "my work")
    (source / NAMES[0]).write_text(SHOWS_A_VIEW.replace("2.3", "2.4"))
    before = (view_copy / NAMES[0]).read_bytes()
    assert lessons.bring(view_copy, source) == lessons.Brought(view_copy)
    assert (view_copy / NAMES[0]).read_bytes() == before
    assert seen(view_copy) == list(NAMES)


def test_what_is_gone_or_new_comes_and_what_is_no_more_stays(copy, source):
    (copy / NAMES[2]).unlink()
    say(source, "new", "03_loss_scaling.ipynb")
    (source / NAMES[1]).unlink()
    assert lessons.bring(copy, source).added == (NAMES[2], "03_loss_scaling.ipynb")
    assert (copy / NAMES[1]).exists()


@pytest.mark.parametrize("damage", ["", "[]", "no JSON", None])
def test_without_the_list_of_what_was_delivered_nothing_is_overwritten(copy, source, damage):
    own_list = copy / ".amp-lessons" / "delivered.json"
    own_list.write_text(damage) if damage is not None else own_list.unlink()
    say(copy, "my work")
    say(source, "version 2 of the other", NAMES[1])
    brought = lessons.bring(copy, source)
    assert set(brought.beside) == {NAMES[0], NAMES[1]}
    assert said(copy / NAMES[0]) == "my work"


def test_a_folder_with_other_things_in_it_keeps_them(tmp_path, source):
    say(tmp_path, "my own notebook of that name")
    (tmp_path / "thesis.txt").write_text("years of work")
    brought = lessons.bring(tmp_path, source)
    assert brought.made
    assert said(tmp_path / NAMES[0]) == "my own notebook of that name"
    assert said(brought.beside[NAMES[0]]) == f"{NAMES[0]}, version 1"
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_an_empty_folder_keeps_its_place_for_a_shell_may_be_in_it(tmp_path, source):
    place = tmp_path / "empty"
    place.mkdir()
    inode = place.stat().st_ino
    assert lessons.bring(place, source).made
    assert place.stat().st_ino == inode


def test_reset_gives_a_fresh_lesson_and_keeps_the_learners(copy, source):
    say(copy, "my work")
    reset = lessons.reset(copy, source, "00")
    assert said(reset.lesson) == f"{NAMES[0]}, version 1"
    assert said(reset.kept) == "my work"
    say(copy, "my second attempt")
    assert said(lessons.reset(copy, source, "0").kept) == "my second attempt"
    assert said(reset.kept) == "my work"


def test_reset_of_an_untouched_lesson_keeps_nothing_and_brings_the_newest(copy, source):
    say(source, "version 2")
    assert lessons.reset(copy, source, "00").kept is None
    assert said(copy / NAMES[0]) == "version 2"


def test_reset_takes_the_new_version_that_lay_beside(copy, source):
    say(copy, "my work")
    say(source, "version 2")
    lessons.bring(copy, source)
    kept = lessons.reset(copy, source, "00").kept
    assert seen(copy) == sorted([*NAMES, kept.name])
    assert lessons.bring(copy, source) == lessons.Brought(copy)


def test_a_lesson_that_there_is_not_is_refused(copy, source):
    with pytest.raises(ValueError, match="'7'; choose one of 00, 01, 02"):
        lessons.reset(copy, source, "7")


def test_the_folder_is_the_copy_that_one_is_in_else_that_of_the_checkout_else_here(copy, source, tmp_path):
    (copy / "notes").mkdir()
    assert lessons.folder_for(copy / "notes") == copy
    assert lessons.folder_for(source) == source.parent / "my_lessons"
    assert lessons.folder_for(tmp_path) == tmp_path / "my_lessons"


def test_who_holds_the_lock_is_waited_for(copy, source, monkeypatch):
    monkeypatch.setattr(own_copy, "_LOCK_TIMEOUT_S", 0.1)
    with files.acquired(copy / ".amp-lessons" / "lock"), pytest.raises(files.InUseError):
        lessons.bring(copy, source)


def test_a_full_disk_leaves_what_was_there_and_no_half_of_a_new_copy(copy, source, monkeypatch, tmp_path):
    def no_space(file):
        raise OSError(28, "No space left on device")

    say(copy, "my work")
    say(source, "version 2")
    monkeypatch.setattr(files.os, "fsync", no_space)
    for folder in (copy, tmp_path / "deep" / "new"):
        with pytest.raises(OSError, match="No space left"):
            lessons.bring(folder, source)
    assert said(copy / NAMES[0]) == "my work"
    assert seen(copy) == list(NAMES)
    assert os.listdir(tmp_path / "deep") == []


def test_obstacles_are_named(tmp_path):
    assert lessons.obstacle(tmp_path / "deep" / "below") == ""
    (tmp_path / "file").write_text("")
    assert "is a file" in lessons.obstacle(tmp_path / "file" / "my_lessons")


# What the process does that is killed: the module alone, without PyTorch, so that it starts quickly.
ACTING = """
import os, signal, sys
from pathlib import Path
from amp_lessons import lessons
left = int(sys.argv[1])
def count(event, arguments):
    global left
    if event in ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.copyfile"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
{act}
"""
BRING = "lessons.bring(Path(sys.argv[2]), Path(sys.argv[3]))"
RESET = "lessons.reset(Path(sys.argv[2]), Path(sys.argv[3]), '00')"
NEVER = 10**6


def acting(act, at, folder, source):
    """Start a process that is killed before the file event of number ``at``."""
    command = [sys.executable, "-c", ACTING.format(act=act), *map(str, (at, folder, source))]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(lessons.__file__).parents[3])})


def killed(*what):
    """Whether ``act`` was killed; False if there were no more file events."""
    ended = acting(*what).wait()
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill -9 here")


def at_moments(few, all_):
    """Run a test with a few moments at which a process is killed, and with many in `make test-all`."""
    many = pytest.param(all_, marks=pytest.mark.thorough)
    return pytest.mark.parametrize("moments", [few, many], ids=["few", "many"])


@needs_kill
@pytest.mark.slow
@at_moments(range(2, 15, 4), range(20))
def test_killed_at_any_moment_the_copy_is_whole_or_not_there(tmp_path, source, moments):
    kills = 0
    for moment in moments:
        folder = tmp_path / str(moment) / "my_lessons"
        folder.parent.mkdir()
        kills += killed(BRING, moment, folder, source)
        if folder.exists():
            assert lessons.is_copy(folder)
            assert seen(folder) == list(NAMES)
        lessons.bring(folder, source)
        assert [said(folder / name) for name in NAMES] == [f"{name}, version 1" for name in NAMES]
    assert kills >= 0.75 * len(moments)


@needs_kill
@pytest.mark.slow
@pytest.mark.parametrize("act", [BRING, RESET], ids=["bring", "reset"])
@at_moments(range(1, 8, 3), range(0, 40, 2))
def test_killed_at_any_moment_of_a_change_the_learners_work_is_there(tmp_path, source, act, moments):
    kills = 0
    for moment in moments:
        folder = tmp_path / str(moment)
        say(source, "version 1")
        lessons.bring(folder, source)
        say(folder, "my work")
        say(source, "version 2")
        kills += killed(act, moment, folder, source)
        lessons.bring(folder, source)
        assert {"my work", "version 2"} <= {said(folder / name) for name in seen(folder)}
        assert seen(folder)[:1] == [NAMES[0]]
    assert kills >= 0.25 * len(moments)


def test_what_a_killed_process_left_is_removed_after_an_hour(folder, source):
    left = [folder.parent / f".my_lessons-{n}.unfinished" for n in (1, 2)]
    for each in left:
        each.mkdir(parents=True)
    os.utime(left[0], (time.time() - 4000,) * 2)
    lessons.bring(folder, source)
    assert sorted(os.listdir(folder.parent)) == [left[1].name, "my_lessons"]


def test_what_another_process_finishes_meanwhile_is_no_error(folder, source):
    """A name that is listed and no longer there when it is looked at: a link to nowhere is one for good."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    (folder.parent / ".my_lessons-1.unfinished").symlink_to("finished")
    assert lessons.bring(folder, source).made


@pytest.mark.slow
def test_four_at_once_make_one_whole_copy(folder, source):
    running = [acting(BRING, NEVER, folder, source) for _ in range(4)]
    assert [each.wait() for each in running] == [0] * 4
    assert seen(folder) == list(NAMES)
    assert os.listdir(folder.parent) == ["my_lessons"]


def test_the_originals_are_those_of_this_checkout():
    assert lessons.originals() == Path(__file__).parents[3] / "notebooks"
