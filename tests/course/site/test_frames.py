"""Frames: packed and unpacked, kept as long as what they depend on stays, complete for each state."""

from __future__ import annotations

import json
import re
from itertools import accumulate

import pytest

from amp_lessons import views
from amp_lessons.course.lessons import shipped
from amp_lessons.course.site import build as building
from amp_lessons.course.site import made as keeping
from amp_lessons.course.site.build import widget_scripts
from amp_lessons.course.site.frames import cells_to_run, views_to_make
from amp_lessons.course.site.freezing import Pack, differences, freeze, still
from amp_lessons.course.site.making import LIVE, put_shown
from amp_lessons.course.views.base.controls import checkbox, row
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.bits import BitRow
from tests.course.site.sites import write_lesson


def unpacked(packed):
    """What ``views.js`` makes of a pack."""

    def text(number):
        between, *steps = packed["texts"][number]
        return between.join(packed["lines"][line] for line in accumulate(steps))

    def unpack(value):
        if isinstance(value, dict):
            return text(value["#"]) if "#" in value else {name: unpack(each) for name, each in value.items()}
        return [unpack(each) for each in value] if isinstance(value, list) else value

    return {name: unpack(frame) for name, frame in packed["frames"].items()}


def test_a_pack_gives_back_what_was_put_in():
    outline = "M0.00 1.00" + "L2.00 3.00" * 40
    frames = {
        "0": {"1": {"drawing": "line\n" * 60, "outlines": {"a": outline}, "words": ["short", outline]}},
        "1": {"1": {"drawing": "line\n" * 60 + "end", "outlines": {}, "words": [], "index": 3, "none": None}},
    }
    pack = Pack()
    for name, frame in frames.items():
        pack.add(name, frame)
    packed = json.loads(json.dumps(pack.packed()))
    assert unpacked(packed) == frames
    assert len(json.dumps(packed)) < len(json.dumps(frames)) / 2


def test_of_a_frame_only_what_differs_is_kept():
    base = {"0": {"value": 1, "label": "x"}, "1": {"caption": "a"}}
    assert differences({"0": {"value": 2, "label": "x"}, "1": {"caption": "a"}}, base) == {"0": {"value": 2}}


@pytest.mark.thorough
def test_a_frozen_view_has_each_of_its_states():
    view = views.RulerView()
    frozen = freeze(view, "x")
    (script,) = frozen.scripts.values()
    packed = json.loads(script.partition(" = ")[2].rstrip().rstrip(";"))
    frames = unpacked(packed)
    assert set(frames) == {"base", *map(str, range(13))}
    page = next(each["of"] for each in packed["tree"]["inside"] if each["kind"] == "MovingPage")
    for zoom in (0, 5, 12):
        view.zoom = zoom
        assert {**frames["base"][page], **frames[str(zoom)].get(page, {})}["caption"] == view.caption
    assert frozen.still == (
        "More in the notebook: “Around” and a field for any other number, such as 2048 or 0.1."
    )


def test_a_box_to_tick_is_named_among_what_is_in_the_notebook():
    class Ticked(View):
        def __init__(self):
            self.box = checkbox("router")
            super().__init__([row(self.box)], alt="")

    assert still(Ticked(), []) == "More in the notebook: “router”."


def test_a_view_that_stands_still_is_not_frozen():
    assert freeze(views.BitView(), "x") is None


def test_a_picture_brings_its_narrow_drawing_to_its_page(tmp_path):
    assert put_shown(views.curves({"fp32": [2.0, 1.0]}, "Falling."), "03-fails-run", tmp_path) is None
    assert put_shown(None, "03-fails-loop", tmp_path) is None
    (drawn,) = tmp_path.iterdir()
    (tmp_path / "frames").mkdir()
    file = drawn.rename(tmp_path / "frames" / drawn.name).relative_to(tmp_path).as_posix()
    page = write_lesson(tmp_path, shipped.head_of("03"), {}).read_text("utf-8")
    (picture,) = re.findall(r"<picture><source.*?</picture>", page)
    assert f'media="(max-width: 500px)" srcset="{file}"' in picture
    assert "pictures/03-fails-run.png" in picture


def test_the_picture_of_a_live_view_is_of_the_run_that_made_its_frames(tmp_path):
    def cost(size):
        return {"ms per training step": {"fp32": 7.0, "bf16": 7.0 * size}}

    view = views.Play(cost, "batch size", [1, 3], start=3, measured=True)
    (tmp_path / "frames").mkdir()
    still = put_shown(view, "00-play-view", tmp_path / "frames")
    page = write_lesson(tmp_path, shipped.head_of("00"), {"play-view": still}).read_text("utf-8")
    assert page.count("fp32 7, bf16 21 (300 %).") == 2, "below the picture, and as its alt"
    assert "KiB saved for backward: fp32" not in page, "which the notebook stores"
    assert [file.name for file in (tmp_path / "frames").iterdir()] == ["00-play-view.js"]


def test_the_widgets_scripts_are_functions_of_one_script():
    script = widget_scripts()
    assert "export" not in script
    assert "window.ampWidgets.Slider = (() => {" in script


def test_a_widget_whose_script_exports_more_is_refused(monkeypatch):
    monkeypatch.setattr(BitRow, "_esm", f"export function begin() {{}}\n{BitRow._esm}")
    with pytest.raises(ValueError, match="BitRow's script must end with"):
        widget_scripts()


def test_a_lesson_is_run_as_far_as_its_last_view_without_its_questions():
    cells = cells_to_run("03")
    assert cells[-1]["id"] == "cycle-view"
    assert not any(shipped.source(cell).startswith(("views.Quiz(", "views.check(")) for cell in cells)
    assert cells_to_run("04") == cells_to_run("10") == [], "whose views stand still"


def test_each_step_says_how_many_there_are_and_what_is_left(monkeypatch):
    said, now = [], iter((0.0, 10.0, 40.0))
    monkeypatch.setattr(building, "watched", lambda: None)
    monkeypatch.setattr(building.time, "monotonic", lambda: next(now))
    step = building.counted_steps(2, said.append)
    step("03")
    step("cards")
    assert said == ["03: 1 of 2, about 10 s left", "cards: 2 of 2, about 0 s left"]


def test_only_what_is_not_kept_is_to_be_made(made, tmp_path):
    assert views_to_make("03", tmp_path) == 3
    made("\n".join(f"{each['id']}\n{shipped.source(each)}" for each in cells_to_run("03")))
    assert views_to_make("03", tmp_path) == 0


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Ask for something; it is made by writing what was asked, and depends on two files."""

    def make(name, asked, folder, _step):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LIVE).write_text("{}")
        depends = keeping._depends(asked, ["_base/files.py", "devices.py"])
        (folder / "depends.json").write_text(json.dumps(depends))
        calls.append(asked)

    calls = []
    monkeypatch.setattr(keeping, "_make", make)
    return lambda asked: (keeping.made("03", asked, tmp_path, lambda _: None), len(calls))[1]


def test_what_was_made_is_kept_until_something_else_is_asked(made):
    assert [made("a"), made("a"), made("b")] == [1, 1, 2]


def test_it_is_made_anew_once_a_file_has_changed_or_the_note_of_it_is_damaged(made, tmp_path):
    assert made("a") == 1
    note = tmp_path / "03" / "depends.json"
    changed = json.dumps({**json.loads(note.read_text()), "files": {"_base/files.py": "another"}})
    damaged = ("", "[]", '{"files": 3}', '{"files": ["no_such_file.py"]}')
    for calls, noted in enumerate((changed, *damaged), start=2):
        note.write_text(noted)
        assert made("a") == calls


@pytest.mark.thorough
def test_a_process_of_its_own_makes_it_and_says_what_it_has_loaded(tmp_path):
    steps = []
    folder = keeping.made("00", "x", tmp_path, steps.append)
    assert steps == ["00", "00"]
    kept = json.loads((folder / "depends.json").read_text())
    assert {"course/views/widgets/play.py", "course/site/freezing.py"} <= set(kept["files"])
    assert list(json.loads((folder / LIVE).read_text())) == ["surprise", "play-view"]
    assert (folder / "00-play-view.js").is_file()
