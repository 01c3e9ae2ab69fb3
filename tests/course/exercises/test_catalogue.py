"""Stubs, solutions and hints stay together with their checks, as they do when spliced into a notebook."""

from __future__ import annotations

import ast
import csv
import dataclasses
import functools
import io
import json
import re

import pytest
import torch

from amp_lessons import clinic, exercises
from amp_lessons._base.text import words
from amp_lessons.course import progress
from amp_lessons.course.exercises import shelf
from tests.course.exercises.spots import notebook_cell

EXERCISES = exercises.catalog()
EVERY_ONE = (*EXERCISES, *shelf.interview_tasks())


def run_cell(source):
    namespace = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), namespace)
    return namespace


def attempt(exercise, source):
    namespace = run_cell(f"import torch\n{source}")
    return exercise.defined_in(namespace)


def id_of(exercise):
    return exercise.id


@pytest.fixture(params=EVERY_ONE, ids=id_of)
def exercise(request):
    return request.param


def test_exercises_are_in_the_order_of_the_lessons():
    lessons = [exercise.lesson for exercise in EXERCISES]
    assert lessons == sorted(lessons)
    assert len({exercise.id for exercise in EXERCISES}) == len(EXERCISES)


def test_card_says_what_a_learner_needs(exercise):
    assert 1 <= exercise.difficulty <= 5
    assert 5 <= exercise.minutes <= 30
    assert len(exercise.task.split()) >= 20
    card = exercise._repr_mimebundle_()
    for text in card.values():
        assert f"about {exercise.minutes} minutes" in text


def test_what_the_check_asks_is_a_list_of_what_is_given_returned_and_checked(exercise):
    parts = [re.fullmatch(r"- (Given|Return|Checked): .+\.", line) for line in exercise.asks.splitlines()]
    assert all(parts), exercise.asks
    said = [part[1] for part in parts]
    assert sorted(said, key=["Given", "Return", "Checked"].index) == said
    assert set(said) == {"Given", "Return", "Checked"}


def test_a_card_shows_no_markup(exercise):
    said = (exercise.task, exercise.asks, *exercise.hints, exercise.explanation)
    prose = re.sub(r"`[^`]+`", "", words.superscripts("\n".join(said)))
    assert re.findall(r"\S*(?:\*\*|\^|\$|`)\S*", prose) == []


def test_what_the_check_asks_is_folded_on_the_card_and_stands_in_its_text():
    card = dataclasses.replace(EXERCISES[0], asks="- Given: `x`.\n- Checked: 2**n.")._repr_mimebundle_()
    for mime in ("text/html", "text/markdown"):
        _, folded = card[mime].split("<details><summary>What the check asks</summary>")
        assert "Given" in folded.split("</details>")[0]
    assert card["text/plain"].endswith("What the check asks:\n- Given: `x`.\n- Checked: 2**n.")


@pytest.mark.parametrize(
    "exercise", [each for each in EVERY_ONE if not each.is_patient], ids=id_of, indirect=True
)
def test_stub_is_not_attempted_yet(exercise):
    report = exercises.check(exercise.id, attempt(exercise, exercise.stub))
    assert report.status == "not attempted yet"
    assert not report.passed
    assert not report.attempted
    assert [finding.kind for finding in report.findings] == ["todo"]
    for text in report._repr_mimebundle_().values():
        assert "not attempted yet" in text
        assert "not_attempted" not in text
    assert progress.read().of(exercise.id).tries == 0


PATIENTS = [each for each in EXERCISES if each.is_patient]


@pytest.mark.parametrize("exercise", PATIENTS, ids=id_of, indirect=True)
@pytest.mark.parametrize("above", ["", "# my notes\n\n"])
def test_a_patient_as_it_came_stands_unjudged(exercise, above):
    commented = exercise.stub.replace("\n    ", "\n    # here\n    ", 1)
    came = exercise.defined_in(notebook_cell(above + commented))
    report = exercises.check(exercise.id, came)
    (finding,) = report.findings
    assert finding.kind == "todo"
    assert report.points == 0.0
    for name in exercise.names:
        assert name in finding.message
    assert "the patient's own code" in finding.message
    assert clinic.patient(exercise.id).case.code not in str(report)
    assert progress.read().records == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda ill: notebook_cell(PATIENTS[0].stub.replace("history = []", "history = list()"))[ill.__name__],
        lambda ill: functools.wraps(ill)(lambda *args, **kwargs: ill(*args, **kwargs)),
        functools.partial,
        lambda ill: None,
    ],
    ids=["a line", "a wrapper", "a partial", "nothing"],
)
def test_a_patient_that_was_changed_at_all_is_judged(change):
    (name,) = PATIENTS[0].names
    report = exercises.check(PATIENTS[0].id, change(notebook_cell(PATIENTS[0].stub)[name]))
    assert report.status == "not passed"
    assert progress.read().of(PATIENTS[0].id).tries == 1


@pytest.mark.parametrize("exercise", PATIENTS, ids=id_of, indirect=True)
def test_a_patients_stub_runs_and_is_wrong(exercise):
    """Without its source nobody can tell that it is the stub, and it is examined."""
    report = exercises.check(exercise.id, attempt(exercise, exercise.stub))
    assert report.status == "not passed"
    assert report.findings[0].kind == "failed"
    assert report.findings[0].code not in ("raised", "signature", "unfinished")


@pytest.mark.few
def test_solution_source_passes_when_pasted_over_the_stub(exercise):
    solution = exercises.solution(exercise.id)
    report = exercises.check(exercise.id, attempt(exercise, solution.source))
    assert report.passed, report
    assert all(finding.kind == "passed" for finding in report.findings)
    assert exercises.check(exercise.id, solution.function).passed


def test_stub_and_solution_define_the_same_signatures(exercise):
    stub, solution = (ast.parse(source) for source in (exercise.stub, exercise.solution_source))
    assert signatures(stub) == signatures(solution)


def signatures(tree):
    return {
        node.name: ast.dump(node.args, annotate_fields=False)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


def test_stub_and_solution_fit_a_notebook_page(exercise):
    for source in (exercise.stub, exercise.solution_source):
        assert max(map(len, source.splitlines())) <= 110


def test_hints_are_recorded_and_lead_on(exercise):
    texts = [exercises.hint(exercise.id, number).text for number in (1, 2, 3)]
    assert len(set(texts)) == 3
    assert progress.read().of(exercise.id).hints == 3
    for number in (0, 4, -1, "one", None):
        with pytest.raises(ValueError, match="hints 1 to 3"):
            exercises.hint(exercise.id, number)


def test_unknown_exercise_is_answered_with_those_there_are():
    for ask in (exercises.solution, lambda id: exercises.check(id, None), lambda id: exercises.hint(id, 1)):
        with pytest.raises(ValueError, match="train_with_amp"):
            ask("train_with_apm")


def test_the_task_says_that_a_scale_may_be_below_1_where_the_check_asks_for_one():
    right = exercises.solution("largest_safe_scale").function
    refused = exercises.check("largest_safe_scale", lambda gradients: max(right(gradients), 1.0))
    assert refused.status == "not passed"
    (task,) = (each.task for each in EXERCISES if each.id == "largest_safe_scale")
    assert task.endswith("It may be below 1.")


def test_tries_and_solving_are_recorded():
    right = exercises.solution("largest_safe_scale").function
    for code in (None, lambda gradients: 1.0, right, None):
        exercises.check("largest_safe_scale", code)
    record = progress.read().of("largest_safe_scale")
    assert record.solved
    assert record.tries == 3, "what happens after an exercise is solved does not count"
    assert record.solution_seen
    overview = exercises.overview()
    assert overview.solved == 1
    assert overview.next_exercise.id == EXERCISES[0].id
    assert f"1 of {len(EXERCISES)} exercises solved" in str(overview)
    assert "3 tries" in overview._repr_mimebundle_()["text/html"]
    assert json.loads(progress.read().as_json())["largest_safe_scale"]["tries"] == 3
    (row,) = csv.DictReader(io.StringIO(progress.read().as_csv()))
    assert (row["exercise"], row["tries"], row["hints"]) == ("largest_safe_scale", "3", "0")


def test_checks_work_where_progress_cannot_be_saved(monkeypatch, tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("AMP_LESSONS_HOME", str(blocked))
    report = exercises.check("largest_safe_scale", exercises.solution("largest_safe_scale").function)
    assert report.passed
    assert report.findings[-1].code == "progress_file"
    assert "cannot be saved" in report.findings[-1].message


@pytest.mark.parametrize("ask", [exercises.solution, lambda id: exercises.hint(id, 1)])
def test_damaged_progress_is_named_beside_hint_and_solution(progress_home, ask):
    progress_home.mkdir()
    progress.path().write_text("{")
    told = ask("largest_safe_scale")
    assert "progress.damaged-" in told.message
    shown = {**told._repr_mimebundle_(), "str": str(told)}
    assert all("progress.damaged-" in text for text in shown.values())
    assert ask("largest_safe_scale").message == ""


@pytest.mark.parametrize(
    "damage",
    [
        '{"schema": 1, "exercises": {"largest_safe_scale": {"tries": "abc", "hints": "x"}}}',
        '{"schema": 1, "exercises": {"largest_safe_scale": {"tries": 1, "solved_at": 7}}}',
        pytest.param("[" * 200_000, id="nested too deeply"),
    ],
)
@pytest.mark.parametrize("movable", [True, False])
def test_no_damage_costs_a_report_or_a_hint(progress_home, monkeypatch, damage, movable):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    progress_home.mkdir()
    if not movable:
        monkeypatch.setattr("os.replace", forbidden)
    for ask in (
        lambda: exercises.check("largest_safe_scale", None).findings[-1],
        lambda: exercises.hint("largest_safe_scale", 1),
        lambda: exercises.solution("largest_safe_scale"),
        exercises.overview,
    ):
        progress.path().write_text(damage)
        assert ("progress.damaged-" if movable else "progress.json is damaged") in ask().message


@pytest.mark.parametrize("largest", [65504.0, 65519.9, 65520.0, 65521.0, 3e-7, 1.0, 2e6])
@pytest.mark.parametrize("scaled_down", [1, 2**9, 2**30])
def test_the_largest_safe_scale_is_that_of_brute_force(largest, scaled_down):
    gradients = [torch.tensor([1e-9, -largest / scaled_down], dtype=torch.float64)]
    fits = [2.0**e for e in range(-30, 90) if (gradients[0] * 2.0**e).half().isfinite().all()]
    assert exercises.solution("largest_safe_scale").function(gradients) == max(fits)
