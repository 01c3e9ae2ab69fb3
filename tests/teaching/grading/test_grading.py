"""A class hands in: whoever solved it gets the points, whoever cheats does not, nobody disturbs anybody."""

from __future__ import annotations

import csv
import io
import os

import pytest

from amp_lessons import grading
from amp_lessons.cli import cli
from amp_lessons.course import progress
from amp_lessons.teaching.grading import wall
from tests.teaching.grading.handed_in import HOSTILE, cell_of, hand_in, notebook, solution, write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SCALE = "largest_safe_scale"
WRONG = f"def {SCALE}(gradients):\n    return 512.0"
ALONE = f"def {SCALE}(gradients):\n    "
LOOP = "class LossScaler:\n    def __init__(self, *args, **kwargs):\n        while True:\n            pass"
UNUSUAL = "import gc\n" + solution("loss_scaler") + "    everything = gc.get_objects"
NAME = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Grade a class of every sort, once."""
    folder = tmp_path_factory.mktemp("submissions")
    right = {SCALE: solution(SCALE), "loss_scaler": solution("loss_scaler")}
    hand_in(folder / "right.ipynb", "03", **right)
    hand_in(folder / "unsolved" / "deeper" / "03_loss_scaling.ipynb", "03")
    hand_in(folder / "wrong_03_loss_scaling.ipynb", "03", **{SCALE: WRONG, "loss_scaler": LOOP})
    hand_in(folder / "hostile.ipynb", "03", **{SCALE: HOSTILE, "loss_scaler": UNUSUAL})
    hand_in(folder / f"={NAME.replace('/', '')}.ipynb", "03", **{SCALE: f"import os\n{ALONE}os._exit(0)"})
    hand_in(folder / "typo.ipynb", "03", **{SCALE: f"def {SCALE}(gradients) return 1.0"})
    (folder / "broken.ipynb").write_text("[" * 100_000)
    (folder / "link.ipynb").symlink_to("/etc/passwd")
    (folder / "nothing").mkdir()
    changed = notebook("03")
    cell_of(changed, SCALE, "stub")["source"] = WRONG
    check = cell_of(changed, SCALE, "check")
    check["source"] = f'views.check("{SCALE}", max)'
    check["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "The largest safe scale: passed"}]
    changed["cells"] = [cell for cell in changed["cells"] if cell["id"] != "loss-scaler-check"]
    write(folder / "edited.ipynb", changed)
    before = os.environ.get("AMP_LESSONS_HOME")
    grades = grading.grade(folder, terms=grading.Terms(limit_s=4.0, jobs=2, unprotected=True))
    assert os.environ.get("AMP_LESSONS_HOME") == before
    return grades


def of(graded, learner, exercise_id):
    (found,) = (each for each in graded.learners if each.learner == learner)
    return next(each for each in found.grades if each.exercise_id == exercise_id)


@pytest.mark.parametrize(
    ("learner", "exercise_id", "points", "status"),
    [
        ("right", SCALE, 1.0, "passed"),
        ("right", "loss_scaler", 1.0, "passed"),
        ("unsolved", SCALE, 0.0, "not attempted yet"),
        ("unsolved", "loss_scaler", 0.0, "not attempted yet"),
        ("wrong", SCALE, 0.0, "not passed"),
        ("wrong", "loss_scaler", 0.0, "not passed"),
        ("hostile", SCALE, 0.0, "not passed"),
        ("hostile", "loss_scaler", 1.0, "passed"),
        ("edited", SCALE, 0.0, "not passed"),
        ("typo", SCALE, 0.0, "not passed"),
        ("broken", SCALE, 0.0, "not handed in"),
        ("link", SCALE, 0.0, "not handed in"),
        (f"={NAME}", SCALE, 0.0, "not passed"),
    ],
)
def test_points_are_for_what_was_solved(graded, learner, exercise_id, points, status):
    grade = of(graded, learner, exercise_id)
    assert (grade.points, grade.status) == (points, status), grade
    assert grade.report is None or grade.report.points == points


def test_cheating_that_can_be_seen_is_said(graded):
    said = "\n".join(graded.remarks())
    assert f"right, {SCALE}: the code is the card's solution" in said
    assert f"edited, {SCALE}: the notebook shows “passed”" in said
    assert f"edited, {SCALE}: the cell with the check was changed" in said
    assert "edited, loss_scaler: the cell with the check was removed" in said
    assert f"typo, {SCALE}: the cell is not Python" in said
    assert "broken: broken.ipynb: " in said
    assert "link: link.ipynb: a link" in said
    assert "wrong" not in said
    assert "unsolved" not in said


def test_an_endless_loop_says_so_and_the_grader_has_not_practised(graded):
    assert of(graded, "wrong", "loss_scaler").report.findings[0].code == "time_limit"
    assert not progress.read().records


def test_no_spreadsheet_takes_a_cell_for_a_formula(graded):
    rows = list(csv.reader(io.StringIO(graded.as_csv())))
    assert len({len(row) for row in rows}) == 1
    assert any(row[0].startswith("'=") for row in rows)
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


def test_a_page_escapes_what_others_wrote(graded):
    hostile = next(each for each in graded.learners if NAME in each.learner)
    page = grading.page(hostile, graded.about)
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert "default-src 'none'" in page
    assert "/" not in grading.file_name(hostile, 1)


def test_half_a_character_stops_no_page_and_no_table():
    grade = grading.Grade(SCALE, "title", "not passed", remarks=("\ud800\x1b[2J",), source="'\ud800'")
    graded = grading.Graded("\udc80ada", (grade,))
    page, text = grading.page(graded, ""), grading.Grades((graded,)).as_csv()
    assert (page + text + str(grading.Grades((graded,)).as_table())).encode("utf-8")
    assert "\x1b" not in page + text


def test_the_table_has_a_row_for_each(graded):
    rows = {row["learner"]: row for row in graded.as_table().records}
    assert rows["right"]["points"] == "2 of 2"
    assert rows["hostile"][SCALE] == "0"
    assert rows["unsolved"][SCALE] == "·"


def test_the_command_writes_table_and_files(tmp_path, capsys):
    hand_in(tmp_path / "in" / "ada.ipynb", "03", **{SCALE: solution(SCALE)})
    out = tmp_path / "out"
    asked = ["grade", str(tmp_path / "in"), "--exercise", SCALE, "--out", str(out), "--unprotected"]
    assert cli.main(asked) == 0
    said = capsys.readouterr().out
    assert "1 of 1" in said
    assert str(wall.standing()) in said
    assert sorted(path.name for path in out.iterdir()) == ["001_ada.html", "grades.csv"]


@pytest.mark.parametrize("argument", [[], ["--exercise", "loss_scalr"]])
def test_what_cannot_be_graded_is_said(tmp_path, capsys, argument):
    assert cli.main(["grade", str(tmp_path), *argument]) == 2
    assert "amp-lessons grade: there is no" in capsys.readouterr().err


def test_without_a_wall_the_teacher_has_to_say_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(wall, "standing", lambda: wall.Wall(""))
    hand_in(tmp_path / "ada.ipynb", "03", **{SCALE: solution(SCALE)})
    assert cli.main(["grade", str(tmp_path), "--exercise", SCALE]) == 2
    assert "--unprotected" in capsys.readouterr().err
