"""The room's state: who takes part, what is seen, what is refused, and what is forgotten."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from amp_lessons import exercises, quizzes

pytest.importorskip("tornado")

from classroom.room import course, names
from classroom.room.allowance import Allowance
from classroom.room.state import NotTakingPartError, Room, UnknownError

QUESTION = "scaling.floor"
RIGHT = next(i for i, each in enumerate(quizzes.question(QUESTION).choices) if each.right)
WRONG = 0


@pytest.fixture
def room():
    room = Room()
    room.join("ada", "Ada L.")
    room.join("bob")
    return room


def counts(room, which="now"):
    return [choice[which] for choice in room.board()["prediction"]["choices"]]


def test_an_answer_counts_once_and_a_second_one_replaces_it(room):
    room.open(QUESTION)
    room.vote("ada", QUESTION, WRONG)
    room.vote("ada", QUESTION, WRONG)
    room.vote("bob", QUESTION, RIGHT)
    assert counts(room) == [1, 1, 0]
    room.vote("ada", QUESTION, RIGHT)
    assert counts(room) == [0, 2, 0]
    assert counts(room, "first") == [1, 1, 0]
    assert room.board()["prediction"]["answered"] == 2


def test_answers_are_seen_when_the_teacher_shows_them_and_the_right_one_when_it_is_said(room):
    room.reveal()  # which says nothing: nothing is shown
    room.vote("ada", QUESTION, RIGHT)
    assert room.board()["prediction"] is None
    assert room.answered() == {QUESTION: 1}
    why = quizzes.question(QUESTION).answer.why
    room.open(QUESTION)
    shown = room.board()["prediction"]
    assert {choice["right"] for choice in shown["choices"]} == {None}
    assert why not in json.dumps(room.board(), ensure_ascii=False)
    room.reveal()
    shown = room.board()["prediction"]
    assert [choice["right"] for choice in shown["choices"]].index(True) == RIGHT
    assert shown["why"] == why
    room.open("scaling.growth")
    assert room.board()["prediction"]["why"] is None
    room.close()
    assert room.board()["prediction"] is None


def test_who_solved_what_is_counted_and_only_chosen_names_are_seen(room):
    room.solve("ada", "loss_scaler")
    room.solve("bob", "loss_scaler")
    room.solve("bob", "loss_scaler")
    (task,) = room.board()["exercises"]
    assert (task["solved"], task["names"], task["lesson"]) == (2, ["Ada L."], "03")
    assert not {"ada", "bob"} & set(json.dumps(room.board()).split('"'))


def test_who_takes_the_name_back_is_unnamed_and_keeps_what_was_done(room):
    room.solve("ada", "loss_scaler")
    room.join("ada")
    (task,) = room.board()["exercises"]
    assert (task["solved"], task["names"], room.board()["named"]) == (1, [], [])


def test_only_who_joined_is_heard(room):
    for act in (lambda: room.vote("eve", QUESTION, RIGHT), lambda: room.solve("eve", "loss_scaler")):
        with pytest.raises(NotTakingPartError):
            act()
    assert room.answered() == {}


@pytest.mark.parametrize("choice", [-1, 3, True, "1", 1.0, None, [1], 10**400])
def test_an_answer_that_the_question_does_not_have_is_refused(room, choice):
    with pytest.raises(UnknownError):
        room.vote("ada", QUESTION, choice)
    assert room.answered() == {}


@pytest.mark.parametrize("unknown", ["", "no.such", "__proto__", "<script>", None, [], 3])
def test_what_the_course_does_not_have_is_refused(room, unknown):
    for act in (
        lambda: room.vote("ada", unknown, 0),
        lambda: room.open(unknown),
        lambda: room.solve("ada", str(unknown)),
    ):
        with pytest.raises(UnknownError):
            act()


def test_who_leaves_is_forgotten_and_so_is_everybody_at_the_end(room):
    for login in ("ada", "bob"):
        room.vote(login, QUESTION, RIGHT)
        room.solve(login, "loss_scaler")
    room.leave("ada")
    assert (room.answered(), room.board()["named"]) == ({QUESTION: 1}, [])
    room.open(QUESTION)
    before = room.version
    room.end()
    board = room.board()
    assert board.pop("version") != before
    assert board == {"taking_part": 0, "named": [], "prediction": None, "exercises": []}
    with pytest.raises(NotTakingPartError):
        room.vote("bob", QUESTION, RIGHT)


def test_a_room_that_was_started_again_is_never_taken_for_the_old_one():
    assert Room().version != Room().version


NAMES = [
    "Ada",
    "Łukasz Ó Súilleabháin",
    "أحمد",
    "陳大文",
    "Ngọc Ánh",
    "می‌خواهم",
    "👩‍🔬",
    "<b>Bobby'); DROP TABLE",
    "__proto__",
]


@pytest.mark.parametrize("name", NAMES)
def test_people_may_be_called_what_they_are_called(name):
    assert names.chosen(f"  {name} ") == names.chosen(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "\u200d",
        "a" * 41,
        "a\x00b",
        "\u202egnp.exe",
        "a\u200eb",
        "Z" + "\u0301" * 20,
        "\ud800",
        5,
        ["Ada"],
    ],
)
def test_names_that_play_tricks_are_refused(name):
    with pytest.raises(names.NameRefusedError):
        names.chosen(name)


def test_nobody_takes_the_name_of_another(room):
    for name in ("Ada L.", "ada l.", "Ａda L.", " Ada  L. "):
        with pytest.raises(names.NameRefusedError, match="somebody"):
            room.join("bob", name)
    room.join("ada", "ADA L.")
    assert room.board()["named"] == ["ADA L."]


def test_the_room_knows_the_course_without_loading_pytorch():
    told = [(each.id, each.title, each.lesson) for each in course.tasks().values()]
    assert told == [(each.id, each.title, each.lesson) for each in exercises.catalog()]
    asked = {id: each for of_lesson in course.predictions().values() for id, each in of_lesson.items()}
    assert asked == quizzes.questions()
    code = "import sys; from classroom.room import course; course.tasks(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_allowance_is_used_up_grows_back_and_is_everybodys_own():
    now = 0.0
    allowance = Allowance(at_once=3, per_second=0.5, clock=lambda: now)
    assert [allowance.take("ada") for _ in range(4)] == [True, True, True, False]
    assert allowance.take("bob")
    now = 1.9
    assert not allowance.take("ada")
    now = 2.1
    assert [allowance.take("ada") for _ in range(2)] == [True, False]
    now = 1000.0
    assert [allowance.take("ada") for _ in range(4)] == [True, True, True, False]
