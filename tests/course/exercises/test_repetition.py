"""Solved exercises come back after days, and only what is done then counts."""

from __future__ import annotations

import json
import runpy
from datetime import timedelta

import pytest

from amp_lessons import exercises, views
from amp_lessons.course import progress
from amp_lessons.course.exercises import own_code, repetition
from tests.course.exercises.spots import notebook_cell
from tests.course.keep import keep

ID = "decode_bits"


def checked(passed):
    return progress.change(lambda kept: repetition.record_check(ID, passed, "", kept))


def days_ago(days):
    return progress.utc_now() - timedelta(days=days)


def edit(part, **values):
    """Write values into what is kept of an exercise, in a part of the file."""
    content = json.loads(progress.path().read_text())
    content[part] |= {id: {**content[part].get(id, {}), **its} for id, its in values.items()}
    progress.path().write_text(json.dumps(content))


def solve(days, id=ID, **record):
    """Let the exercise have been solved so many days ago."""
    keep("record_try", id, True)
    edit("exercises", **{id: {"solved_at": days_ago(days).isoformat(), **record}})


def due():
    return [each.id for each in exercises.due_for_repetition()]


def test_what_is_not_solved_is_never_due():
    assert due() == []
    keep("record_try", ID, False)
    assert due() == []


def test_it_is_due_after_two_days_and_then_after_eleven():
    solve(days=1)
    assert due() == []
    solve(days=2)
    assert due() == [ID]
    keep("review", ID, "good", days_ago(0))
    assert due() == []
    solve(days=13)
    keep("take_back", ID)
    keep("review", ID, "good", days_ago(11))
    assert due() == [ID]


def test_whoever_has_seen_the_solution_repeats_it_sooner():
    solve(days=1, solution_seen=True)
    assert due() == [ID]


def test_a_check_counts_when_it_is_due_and_once():
    solve(days=1)
    for _ in range(2):
        assert checked(True) == ""
    assert progress.read().reviews.get(ID, ()) == ()
    solve(days=2)
    for passed in (False, True, True):
        checked(passed)
    assert [review.grade for review in progress.read().reviews.get(ID, ())] == ["again"]
    assert progress.read().of(ID).tries == 1


def test_a_check_of_a_solved_exercise_is_a_repetition():
    solve(days=5)
    solution = exercises.shelf.find(ID).solution
    assert exercises.check(ID, solution).passed
    assert [review.grade for review in progress.read().reviews.get(ID, ())] == ["good"]
    assert due() == []


def test_a_damaged_file_is_named_by_the_check_that_finds_it(progress_home):
    progress_home.mkdir()
    for damage in ("{", '{"schema": 1, "exercises": {}, "practice": 7}'):
        progress.path().write_text(damage)
        assert "progress.damaged-" in checked(False)
        assert checked(False) == ""


def test_solving_it_anew_begins_anew():
    solve(days=30)
    keep("review", ID, "again", days_ago(20))
    keep("forget", ID)
    solve(days=1)
    assert due() == []


def test_the_card_and_the_overview_say_so():
    card = views.ExerciseCard(ID)
    assert repetition.DUE not in card.status
    solve(days=2)
    card.refresh()
    assert "It is due for repetition: empty the cell" in card.status
    assert str(exercises.overview()).count(repetition.DUE) == 1
    keep("review", ID, "good")
    card.refresh()
    assert repetition.DUE not in card.status


def test_a_stored_card_is_the_same_for_everyone():
    before = views.ExerciseCard(ID)._repr_mimebundle_()
    solve(days=2)
    after = views.ExerciseCard(ID)._repr_mimebundle_()
    assert before["text/markdown"] == after["text/markdown"]
    assert before["text/plain"] == after["text/plain"]


@pytest.mark.parametrize("edited", ["yesterday", ""])
def test_a_day_that_somebody_has_edited_is_no_trouble(edited):
    solve(days=2, solved_at=edited)
    assert due() == []


@pytest.fixture
def hand_in():
    """Check a cell that holds the exercise, whose code is the solution's, below these lines."""
    exercise = exercises.shelf.find(ID)

    def check(above="", code=exercise.solution_source):
        return exercises.check(ID, exercise.defined_in(notebook_cell(above + code)))

    return check


def grades():
    return [review.grade for review in progress.read().reviews.get(ID, ())]


def codes(report):
    return [finding.code for finding in report.findings]


def test_a_cell_that_was_not_emptied_does_not_count(hand_in):
    assert "same_code" not in codes(hand_in())
    solve(days=5)
    for above in ("", "# with a comment\n\n"):
        report = hand_in(above)
        assert report.passed
        assert "same_code" in codes(report)
    assert grades() == []
    assert due() == [ID]


def test_code_that_was_written_anew_counts(hand_in):
    hand_in()
    solve(days=5)
    report = hand_in("again = 1\n")
    assert "same_code" not in codes(report)
    assert grades() == ["good"]


def test_the_same_words_count_when_the_empty_cell_was_checked_before(hand_in):
    """A right answer may be the only one: what counts is that it was written, not that it is new."""
    hand_in()
    solve(days=5)
    assert hand_in(code=exercises.shelf.find(ID).stub).status == "not attempted yet"
    assert "same_code" not in codes(hand_in())
    assert grades() == ["good"]


def test_a_cell_emptied_for_the_last_repetition_is_not_empty_for_the_next(hand_in):
    hand_in()
    solve(days=30)
    keep("keep_emptied", ID)
    edit("written", **{ID: {"emptied_at": days_ago(29).isoformat()}})
    assert "same_code" in codes(hand_in())


def test_a_patient_that_is_ill_again_begins_the_repetition():
    ill = exercises.shelf.find("heal_snail")
    solve(5, ill.id)
    keep("keep_version", ill.id, ill.solution_source)
    assert repetition.handed_in_again(ill.id, ill.solution_source, progress.read()) is not None
    assert not exercises.check(ill.id, notebook_cell(ill.stub)["train_snail"]).attempted
    assert progress.read().reviews.get(ill.id, ()) == ()
    assert repetition.handed_in_again(ill.id, ill.solution_source, progress.read()) is None


def test_what_was_written_is_kept(hand_in):
    assert str(exercises.written_by_you(ID)) == "no code is kept of this exercise"
    hand_in()
    hand_in()
    hand_in("# another way\n")
    kept = exercises.written_by_you(ID)
    assert [each.source[:13] for each in kept.versions] == [
        exercises.shelf.find(ID).solution_source[:13],
        "# another way",
    ]
    assert f"# passed its check on {days_ago(0):%Y-%m-%d}\n# another way" in str(kept)
    for number in range(9):
        hand_in(f"# {number}\n")
    assert [each.source[:3] for each in exercises.written_by_you(ID).versions] == [
        f"# {number}" for number in range(4, 9)
    ]


def test_what_does_not_pass_is_not_kept(hand_in):
    hand_in(code="def decode_bits(bits):\n    return 0.0\n")
    assert exercises.written_by_you(ID).newest is None


def test_where_no_source_can_be_had_a_repetition_counts_as_before():
    hidden = {}
    exec(exercises.shelf.find(ID).solution_source, hidden)
    exercises.check(ID, hidden[ID])
    solve(days=5)
    exercises.check(ID, hidden[ID])
    assert grades() == ["good"]


def test_damaged_code_is_no_trouble(hand_in, progress_home):
    hand_in()
    edit("written", **{ID: {"versions": 7, "emptied_at": ""}})
    assert "the code that you wrote could not be read" in str(hand_in())
    assert exercises.written_by_you(ID).newest is not None


@pytest.mark.parametrize(
    ("exercise_id", "part"), [("loss_scaler", "class LossScaler"), ("resume_training", "def load_checkpoint")]
)
def test_a_class_and_two_functions_have_their_cell_as_source(exercise_id, part):
    exercise = exercises.shelf.find(exercise_id)
    cell = notebook_cell(exercise.solution_source)
    assert own_code.source_of(exercise.defined_in(cell)) == exercise.solution_source
    assert part in own_code.source_of(exercise.defined_in(cell))


def test_in_a_file_it_is_the_function_alone(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n\n\ndef mine():\n    return x\n")
    assert own_code.source_of(runpy.run_path(str(file))["mine"]) == "def mine():\n    return x\n"


def test_blanks_and_comments_make_no_other_code():
    assert own_code.same_code("a = f( 1 )  # one", "a = f(1)\n")
    assert not own_code.same_code("a = f(1)", "a = f(2)")
    assert not own_code.same_code("", "")
    assert own_code.same_code("%time a", " %time a\n")


def test_the_card_shows_the_empty_cell_when_it_is_due(hand_in):
    card = views.ExerciseCard(ID)
    assert card._again.value == ""
    hand_in()
    solve(days=5)
    card.refresh()
    assert "The empty cell" in card._again.value
    assert "written_by_you(&#39;decode_bits&#39;)" in card._again.value


def test_what_was_solved_before_code_was_kept_is_not_said_to_be_kept():
    solve(days=5)
    card = views.ExerciseCard(ID)
    assert "copy it before you empty that" in card._again.value


@pytest.mark.parametrize("kind", [dict, type(lambda: None)])
def test_an_attempt_that_cannot_be_looked_at_has_no_source(kind):
    class Unspeakable(dict):
        def __repr__(self):
            raise RuntimeError("not for you")

    def circle():
        pass

    circle.__wrapped__ = circle
    assert own_code.source_of(Unspeakable() if kind is dict else circle) == ""
