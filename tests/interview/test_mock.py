"""The mock interview: the same from the same seed, and led by what the candidate covers."""

from __future__ import annotations

import pytest

from amp_lessons import exercises, interview
from amp_lessons.interview import Mock
from amp_lessons.interview.mock import follow_up
from amp_lessons.interview.planning import asked_question
from amp_lessons.keeping import practice, progress


class Clock:
    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


def led(mock, covers, step_s=0.0):
    """Answer everything with a function from the number of points to the places covered."""
    texts = []
    while mock.asked is not None:
        texts.append(mock.asked.text)
        mock.clock.at += step_s
        if mock.asked.kind == "question":
            mock.answer(*covers(len(mock.asked.points)))
        elif mock.asked.kind == "estimate":
            mock.guess(mock.asked.estimate.value)
        else:
            mock.hand_in(True)
    return texts


def all_of(points):
    return range(points)


def first_of(points):
    return [0]


def none_of(points):
    return []


@pytest.mark.parametrize("level", interview.LEVELS)
@pytest.mark.parametrize("covers", [all_of, first_of, none_of])
def test_the_same_seed_and_answers_lead_to_the_same_interview(level, covers):
    first, again, other = (led(Mock(level, 45, seed, Clock()), covers) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert len(set(first)) == len(first), "nothing is asked twice"


def test_it_begins_with_a_question_and_ends_with_code():
    mock = Mock("senior", 60, 1, Clock())
    kinds = []
    while mock.asked is not None:
        kinds.append(mock.asked.kind)
        led_one(mock)
    assert kinds[0] == "question"
    assert kinds.count("estimate") == 1
    assert kinds[-1] == "code"


def led_one(mock):
    if mock.asked.kind == "question":
        mock.answer()
    elif mock.asked.kind == "estimate":
        mock.guess(0)
    else:
        mock.hand_in(False)


@pytest.mark.parametrize("level", interview.LEVELS)
@pytest.mark.parametrize("minutes", [5, 20, 30, 90])
def test_what_is_planned_fits_the_time(level, minutes):
    for seed in range(8):
        mock = Mock(level, minutes, seed, Clock())
        coding = [each.exercise for each in mock._coming if each.exercise]
        assert len(coding) == (minutes >= 25)
        assert sum(each.minutes for each in coding) <= minutes / 2
        assert 1 <= mock.number <= minutes / 5 + 1


def test_questions_are_of_the_level_where_there_are_enough():
    asked = [Mock("entry", 20, seed, Clock()).asked for seed in range(10)]
    assert {interview.question(each.question_id).level for each in asked} == {"entry"}


def test_all_covered_leads_deeper():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(*range(len(first.points)))
    assert mock.asked.follows == first.question_id
    assert mock.asked.text in {each.question for each in interview.follow_ups(first.question_id)}


def test_each_follow_up_is_asked_by_some_interviewer():
    """A follow-up that no seed leads to would be written for nobody."""
    for question in interview.QUESTIONS:
        asked = asked_question(question)
        everything = tuple(range(len(asked.points)))
        found = {follow_up(asked, everything, {question.id}, seed).text for seed in range(40)}
        assert found == {each.question for each in interview.follow_ups(question.id)}, question.id


def test_a_follow_up_of_its_own_comes_with_an_answer_and_points():
    asked = asked_question(interview.question("loss_scaling.two_optimizers"))
    known = {"loss_scaling.gradient_penalty"}
    follows = follow_up(asked, tuple(range(len(asked.points))), known, 0)
    assert follows.text == "What if both losses share parameters?"
    assert "each parameter belongs to one optimizer" in follows.answer
    assert len(follows.points) == 3
    mock = Mock("senior", 45, 0, Clock())
    mock.asked = follows
    mock.answer(0)
    assert practice.read().reviews == {}, "it is part of another card"
    first = interview.question("loss_scaling.two_optimizers").question
    assert f"{first} What if both losses share parameters?" in " ".join(str(mock.report).split())


def test_when_all_follow_ups_are_known_a_wrong_belief_is_to_be_put_right():
    question = interview.question("formats.masters")
    known = {each.id for each in interview.follow_ups(question.id)}
    follows = follow_up(asked_question(question), (0, 1, 2), known, 0)
    assert any(belief in follows.text for belief in question.wrong_beliefs)


def test_a_right_number_leads_deeper_too_and_a_wrong_one_does_not():
    for right in (True, False):
        mock = Mock("senior", 45, 2, Clock())
        while mock.asked.kind != "estimate":
            mock.answer()
        asked = mock.asked
        mock.guess(asked.estimate.value if right else -1)
        assert (mock.asked is not None and mock.asked.follows == asked.question_id) == right


def test_a_point_left_out_is_asked_for():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(*range(1, len(first.points)))
    assert first.points[0] in mock.asked.text
    assert mock.asked.points == (first.points[0],)
    assert mock.asked.answer == first.answer


def test_who_knows_nothing_of_it_is_asked_something_else():
    mock = Mock("senior", 45, 3, Clock())
    second = mock._coming[0]
    mock.answer()
    assert mock.asked == second


def test_a_follow_up_has_none():
    mock = Mock("senior", 45, 3, Clock())
    second = mock._coming[0]
    mock.answer(*range(len(mock.asked.points)))
    if mock.asked.kind == "question":
        mock.answer(*range(len(mock.asked.points)))
    else:
        mock.guess(mock.asked.estimate.value)
    assert mock.asked == second


def test_when_the_time_is_over_so_is_the_interview():
    mock = Mock("senior", 45, 0, Clock())
    assert mock.left_s == 45 * 60
    texts = led(mock, none_of, step_s=20 * 60)
    assert len(texts) == 3
    assert mock.left_s == 0
    assert [turn.seconds for turn in mock.turns] == [1200.0] * 3
    with pytest.raises(ValueError, match=r"this interview is over; \.report"):
        mock.answer()


def test_the_report_names_strengths_and_what_to_repeat():
    mock = Mock("senior", 45, 0, Clock())
    first = mock.asked
    led(mock, none_of)
    report = mock.report
    assert first.topic not in report.strengths
    (weak,) = [turn for turn in report.to_repeat if turn.asked == first]
    assert weak.missed == first.points
    assert first.question_id not in str(report), "an id is nothing to read"
    assert first.text in " ".join(str(report).split())
    assert first.points[0] in " ".join(str(report).split())

    perfect = Mock("senior", 45, 0, Clock())
    led(perfect, all_of)
    assert perfect.report.to_repeat == ()
    assert set(perfect.report.strengths) == set(perfect.report.shares)
    assert "Nothing was left out." in str(perfect.report)


def test_a_report_reads_well_everywhere():
    mock = Mock("staff", 45, 5, Clock())
    led(mock, first_of, step_s=60)
    report = mock.report
    assert max(map(len, str(report).splitlines())) <= 80
    shown = report._repr_mimebundle_()
    assert shown["text/plain"] == str(report)
    assert shown["text/html"].count("<h4>") == 3
    assert "**To repeat**" in shown["text/markdown"]


def test_a_number_counts_within_its_tolerance():
    mock = Mock("senior", 45, 2, Clock())
    while mock.asked.kind != "estimate":
        mock.answer()
    value = mock.asked.estimate.value
    assert mock.guess(value)
    assert mock.turns[-1].missed == ()


def test_the_report_puts_a_wrong_number_right():
    mock = Mock("senior", 45, 2, Clock())
    while mock.asked.kind != "estimate":
        mock.answer()
    drawn = mock.asked.estimate
    mock.guess(-1)
    assert f"You said -1 {drawn.unit}".strip() + f"; it is {drawn.value_in_words}." in " ".join(
        str(mock.report).split()
    )


def test_code_is_handed_in_as_the_report_of_its_check():
    mock = Mock("senior", 60, 1, Clock())
    while mock.asked.kind != "code":
        led_one(mock)
    wanted = mock.exercise
    another = next(each.id for each in exercises.catalog() if each.id != wanted.id)
    passed = exercises.Report(wanted.id, wanted.title, ())
    with pytest.raises(ValueError, match=f"asked for is {wanted.id}"):
        mock.hand_in(exercises.Report(another, "", ()))
    mock.hand_in(passed)
    assert mock.turns[-1].covered == ((0,) if passed.passed else ())
    assert mock.asked is None


def test_each_way_to_answer_says_which_one_is_wanted():
    mock = Mock("senior", 45, 0, Clock())
    with pytest.raises(ValueError, match=r"guess\(\) does not answer this: answer\(\) does"):
        mock.guess(1.0)
    with pytest.raises(ValueError, match="numbered from 0 to"):
        mock.answer(9)
    assert mock.turns == []


@pytest.mark.parametrize(("level", "minutes"), [("junior", 45), ("senior", 1), ("senior", 4.5)])
def test_an_interview_that_cannot_be_is_refused(level, minutes):
    with pytest.raises((ValueError, TypeError)):
        Mock(level, minutes)


def test_each_answer_is_kept_at_once():
    mock = Mock("senior", 45, 0, Clock())
    first = mock.asked.question_id
    mock.answer()
    assert [review.grade for review in practice.read().of(first)] == ["again"]


def test_it_goes_on_where_nothing_can_be_kept(progress_home):
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    mock = Mock("senior", 45, 0, Clock())
    mock.answer()
    assert mock.asked is not None
    assert "newer version" in str(mock.report)
