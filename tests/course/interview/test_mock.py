"""The mock interview: the same from the same seed, and led by what the candidate covers."""

from __future__ import annotations

import pytest

from amp_lessons import clinic, exercises, interview
from amp_lessons._base.text import prose
from amp_lessons.course import progress
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.report.results import Finding
from amp_lessons.course.interview import FollowUp, Mock
from amp_lessons.course.interview.planning import (
    FOLLOW_UP_MINUTES,
    another,
    asked_for_code,
    asked_question,
    follow_up,
    nearest_sentence,
    planned,
)
from tests.cli.interview_hands import said
from tests.course.keep import keep
from tests.course.views.hands import Clock

LEVELS = interview.LEVELS
TWO_OPTIMIZERS = interview.question("loss_scaling.two_optimizers")


def senior(seed=3, minutes=45):
    """An interview of somebody at the level in the middle, and its first question."""
    mock = Mock("senior", minutes, seed, Clock())
    return mock, mock.asked


def one(mock, covers):
    """Answer what is asked with the places that a function makes of the number of points: all, some, none."""
    if mock.asked.kind == "question":
        mock.answer(*covers(len(mock.asked.points)))
    elif mock.asked.kind == "estimate":
        mock.guess(mock.asked.estimate.value if covers(1) else -1)
    else:
        mock.hand_in(bool(covers(1)))


def led(mock, covers, step_s=0.0):
    """Answer everything; return what was asked."""
    texts = []
    while mock.asked is not None:
        texts.append(mock.asked.text)
        mock.clock.at += step_s
        one(mock, covers)
    return texts


def led_to(mock, kind):
    """Answer nothing until something of this kind is asked; return that."""
    while mock.asked.kind != kind:
        one(mock, none_of)
    return mock.asked


def all_of(points):
    return range(points)


def first_of(points):
    return [0]


def none_of(points):
    return []


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("covers", [all_of, first_of, none_of])
def test_the_same_seed_and_answers_lead_to_the_same_interview(level, covers):
    first, again, other = (led(Mock(level, 45, seed, Clock()), covers) for seed in (7, 7, 8))
    assert first == again
    assert first != other
    assert len(set(first)) == len(first), "nothing is asked twice"


@pytest.fixture(scope="module")
def plans():
    """A thousand interviews of each level, of 45 minutes."""
    return {level: [list(planned(level, 45, seed)) for seed in range(1000)] for level in LEVELS}


def minutes_of(plan):
    return sum(asked.minutes + (asked.kind != "code") * FOLLOW_UP_MINUTES for asked in plan)


@pytest.mark.parametrize("level", LEVELS)
def test_a_plan_has_no_topic_twice_and_suits_its_level(level, plans):
    below = LEVELS[max(0, LEVELS.index(level) - 1)]
    for plan in plans[level]:
        assert len({asked.topic for asked in plan}) == len(plan)
        assert 40 < minutes_of(plan) <= 45
        assert [asked.kind for asked in plan[-2:]] == ["estimate", "code"]
        first, *others, number = (interview.question(asked.question_id).level for asked in plan[:-1])
        assert first == below, "a warm-up"
        assert {*others} <= {level}, "each topic has questions of each level"
        assert number in (level, below)


def test_every_exercise_is_asked_for_and_every_number_of_the_level(plans):
    coded = {plan[-1].exercise.id for some in plans.values() for plan in some}
    assert coded == {exercise.id for exercise in exercises.catalog()}
    assert max(plan[-1].minutes for plan in plans["senior"]) == 30
    numbers = {question.id for question in interview.QUESTIONS if question.asks_for_a_number}
    assert {plan[-2].question_id for some in plans.values() for plan in some} == numbers


def test_patients_come_in_variants_and_without_a_name_that_can_be_looked_up(plans):
    stubs = {}
    for code in (plan[-1] for plan in plans["senior"] if plan[-1].exercise.is_patient):
        stubs.setdefault(code.exercise.id, set()).add(code.stub)
        assert code.exercise.id not in code.text
    assert min(map(len, stubs.values())) > 1


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("minutes", [5, 20, 25, 30, 60, 90, 180])
def test_what_is_planned_fits_any_time(level, minutes):
    for seed in range(20):
        plan = list(planned(level, minutes, seed))
        assert sum(asked.kind == "code" for asked in plan) == (minutes >= 25)
        assert len({asked.topic for asked in plan}) == len(plan)
        assert minutes_of(plan) <= minutes
        assert sum(asked.minutes for asked in plan if asked.kind == "code") <= 2 / 3 * minutes


def test_with_topics_all_is_of_them_and_so_is_what_comes_besides():
    topics = ("language_models",)
    for minutes in (20, 45):
        asked = list(planned("senior", minutes, 3, topics))
        assert len(asked) >= 3
        assert {each.topic for each in asked} <= {*topics, "coding"}
        assert {each.lesson for each in asked} == {"11"}
        assert len({each.question_id for each in asked if each.question_id}) >= len(asked) - 1
        assert another("senior", asked, 0, topics).topic == "language_models"
    assert Mock("senior", 20, 3, topics=topics).asked.topic == "language_models"
    with pytest.raises(ValueError, match="did you mean language_models"):
        Mock("senior", 20, 3, topics=("language_model",))


def test_each_follow_up_is_asked_by_some_interviewer_of_its_level_or_one_above():
    """A follow-up that no seed leads to would be written for nobody."""
    for question in interview.QUESTIONS:
        asked, level = asked_question(question), LEVELS.index(question.level)
        drawn = [follow_up(asked, tuple(range(len(asked.points))), {question.id}, seed) for seed in range(60)]
        suited = {
            each.question if isinstance(each, FollowUp) else each.id
            for each in interview.follow_ups(question.id)
            if isinstance(each, FollowUp) or level - LEVELS.index(each.level) in (0, 1)
        }
        if suited:
            assert {each.question_id or each.wording for each in drawn} == suited, question.id
        else:
            assert all("A colleague says" in each.wording for each in drawn)


def test_a_follow_up_of_its_own_is_part_of_another_card_and_reported_with_its_question():
    asked = asked_question(TWO_OPTIMIZERS)
    mock, _ = senior()
    mock.asked = follow_up(asked, tuple(range(len(asked.points))), {"loss_scaling.gradient_penalty"}, 0)
    assert "each parameter belongs to one optimizer" in mock.asked.answer
    mock.answer(0)
    assert progress.read().reviews == {}
    assert f"{asked.text} What if both losses share parameters?" in said(str(mock.report))


def test_when_all_follow_ups_are_known_a_wrong_belief_is_to_be_put_right():
    question = interview.question("formats.masters")
    known = {each.id for each in interview.follow_ups(question.id)}
    follows = follow_up(asked_question(question), (0, 1, 2), known, 0)
    assert any(belief in follows.text for belief in question.wrong_beliefs)


@pytest.mark.parametrize("covers", [all_of, none_of])
def test_a_number_leads_deeper_if_it_is_right_and_is_put_right_if_not(covers):
    mock, _ = senior(2)
    asked, right = led_to(mock, "estimate"), covers is all_of
    one(mock, covers)
    assert (mock.asked is not None and mock.asked.follows == asked.question_id) == right
    assert (mock.turns[-1].missed == ()) == right
    number = asked.estimate
    told = f"You said -1 {number.unit}".strip() + f"; it is {number.value_in_words}."
    assert (told in said(str(mock.report))) != right


def test_what_was_covered_decides_what_follows_and_that_leads_to_nothing_more():
    mock, first = senior()
    second = mock._coming[0]
    mock.answer(*range(len(first.points)))
    assert mock.asked.follows == first.question_id
    assert first.points[0] not in mock.asked.text, "that was read a moment ago"
    one(mock, all_of)
    assert mock.asked == second, "a follow-up has none"
    mock.take_back()
    mock.take_back()
    mock.answer(*range(1, len(first.points)))
    assert mock.asked.text.startswith(f"You left this out: “{first.points[0]}”. Why")
    assert first.points[0] not in mock.asked.points, "its words were read in the rubric"
    assert mock.asked.answer == first.answer
    mock.take_back()
    mock.answer()
    assert mock.asked == second, "who knows nothing of it is asked something else"


def test_answers_can_be_taken_back_and_the_clock_runs_on():
    mock, first = senior()
    assert not mock.take_back()
    coming = list(mock._coming)
    keep("review", first.question_id, "easy")
    mock.clock.at += 30
    mock.answer()
    mock.answer(0)
    assert mock.closed == ()
    while mock.turns:
        assert mock.take_back()
    assert (mock.asked, mock._coming, mock.closed) == (first, coming, ())
    assert [each.grade for each in progress.read().reviews[first.question_id]] == ["easy"]
    mock.clock.at += 10
    mock.answer()
    assert mock.closed == (mock.turns[0],)
    assert mock.turns[0].seconds == 40


def test_an_answer_is_kept_and_leaves_a_days_new_cards_alone():
    deck, (mock, first) = interview.Deck(), senior(0)
    new = len(deck.new())
    mock.answer()
    assert [review.grade for review in progress.read().reviews[first.question_id]] == ["again"]
    led(mock, none_of)
    assert len(deck.new()) == new
    deck.grade(deck.new()[0].id, "good")
    assert len(deck.new()) == new - 1


def test_who_was_fast_may_be_asked_of_what_was_not_asked_about_and_the_same_the_next_time():
    mock, _ = senior()
    with pytest.raises(ValueError, match="after the last one"):
        mock.ask_another()
    led(mock, none_of)
    assert "nothing handed in" in said(str(mock.report))
    for _ in range(6):
        mock.ask_another()
        assert mock.asked == another("senior", [turn.asked for turn in mock.turns], 3)
        assert interview.question(mock.asked.question_id).level == "senior"
        mock.answer()
    assert len({turn.asked.text for turn in mock.turns}) == len(mock.turns)
    assert len({turn.asked.topic for turn in mock.turns}) == 13
    mock.clock.at = 60 * 41
    assert not mock.has_another, "a question takes five minutes"


def test_nothing_more_is_asked_of_who_has_ended_it_and_nothing_beside_a_design():
    (mock, first), design = senior(), interview.DesignRound("pretrain", Clock())
    mock.answer(0)
    mock.end()
    assert mock.answers == (("A model answer", first.answer),)
    led(design, all_of)
    assert not mock.has_another
    assert not design.has_another


def test_of_a_point_left_out_the_model_answers_own_sentence_is_shown():
    asked = asked_question(TWO_OPTIMIZERS)
    assert asked.sentence == ""
    places = range(len(asked.points))
    told = {follow_up(asked, tuple(i for i in places if i != out), set(), 0).sentence for out in places}
    assert told - {""}
    assert all(sentence in asked.answer for sentence in told)
    bank = [nearest_sentence(point, q.answer_template) for q in interview.QUESTIONS for point in q.points]
    assert sum(map(bool, bank)) > len(bank) / 2


CLIP = "One calls `unscale_`, and clips after unscaling."
WRONG = f"{CLIP} Wrong, it changes how strongly is clipped, and nothing raises."
BARE = "A power of two moves only the exponent. Nothing but an overflow comes out different."
REASON = "Nothing but an overflow comes out different, because the mantissa stays."
SHORT = "Nothing raises. With SGD the model hardly learns."


@pytest.mark.parametrize(
    ("point", "answer", "sentence"),
    [
        ("nothing raises", WRONG, WRONG),
        ("clip after unscaling", WRONG, CLIP),
        ("overflow of activations", WRONG, ""),
        ("overflow is clipped", WRONG, ""),
        ("it clips after", WRONG, CLIP),
        ("an overflow comes out", BARE, BARE),  # without a reason, it comes with the sentence before
        ("an overflow comes out", f"Other sums differ. {REASON}", REASON),
        ("nothing raises", f"The limit is too low. {SHORT}", SHORT),  # it says no more than the point
    ],
)
def test_a_sentence_is_about_a_point_if_it_has_more_than_half_of_its_words(point, answer, sentence):
    assert nearest_sentence(point, answer) == sentence


def test_code_that_is_asked_for_comes_with_good_code():
    exercise = shelf.find("importance_weights")
    assert asked_for_code(exercise).solution == exercise.solution_source != exercise.stub
    patient = next(each for each in exercises.catalog() if each.is_patient)
    ill = asked_for_code(patient, seed=1)
    assert ill.solution == clinic.patient(patient.id, 1).mended_source != ill.stub


def test_a_point_that_was_told_when_asked_for_need_not_be_repeated():
    for then, repeated in ((all_of, False), (none_of, True)):
        mock, first = senior()
        mock.answer(*range(1, len(first.points)))
        one(mock, then)
        assert [turn.asked for turn in mock.report.to_repeat] == [first] * repeated
    mock, _ = senior()
    mock.answer(*range(2, len(first.points)))
    mock.answer(0, 1)
    (turn,) = mock.report.to_repeat
    assert mock.report.left_out(turn) == first.points[1:2]


def test_a_page_of_the_report_has_each_model_answer_once():
    mock, _ = senior(3, 20)
    led(mock, first_of)
    answers = [answer for _, answer in mock.report.model_answers]
    assert len(answers) == len(set(answers)) > 2
    assert all(str(prose.as_html(answer)) in mock.report.appendix("h2") for answer in answers)


def test_when_the_time_is_over_so_is_the_interview():
    mock, _ = senior(0)
    assert mock.left_s == 45 * 60
    assert len(led(mock, none_of, step_s=20 * 60)) == 3
    assert mock.left_s == 0
    assert [turn.seconds for turn in mock.turns] == [1200.0] * 3
    with pytest.raises(ValueError, match=r"this interview is over; \.report"):
        mock.answer()


def test_code_is_handed_in_as_the_report_of_its_check():
    mock, _ = senior(1, 60)
    wanted = led_to(mock, "code").exercise
    with pytest.raises(ValueError, match=f"asked for is {wanted.id}"):
        mock.hand_in(exercises.Report("another", "", ()))
    mock.hand_in(exercises.Report(wanted.id, "", (Finding("code", "failed", "the scale never grows"),)))
    assert mock.exercise == wanted, "it may be handed in again"
    mock.hand_in(exercises.Report(wanted.id, "", (Finding("code", "passed", "it holds"),)))
    assert [each.passed for each in mock.turns[-1].hand_ins] == [False, True]
    mock.take_back()
    mock.end()  # without giving up
    assert "not passed, 1 failed hand-in" in said(str(mock.report))
    assert "The last check said: the scale never grows" in said(str(mock.report))


def test_code_weighs_as_long_as_it_takes():
    mocks = (Mock("staff", 45, seed, Clock()) for seed in range(99))
    mock = next(each for each in mocks if each._coming[-1].minutes == 30)
    led_to(mock, "code")
    mock.hand_in(True)
    assert mock.report.points == pytest.approx(30 / sum(turn.asked.minutes for turn in mock.turns))
    assert mock.report.points > 0.6
    assert mock.report.strengths == ("coding",)


def test_each_way_to_answer_says_which_one_is_wanted():
    mock, _ = senior(0)
    with pytest.raises(ValueError, match=r"guess\(\) does not answer this: answer\(\) does"):
        mock.guess(1.0)
    with pytest.raises(ValueError, match="numbered from 0 to"):
        mock.answer(9)
    assert mock.turns == []


@pytest.mark.parametrize(("level", "minutes"), [("junior", 45), ("senior", 1), ("senior", 4.5)])
def test_an_interview_that_cannot_be_is_refused(level, minutes):
    with pytest.raises((ValueError, TypeError)):
        Mock(level, minutes)


def test_it_goes_on_where_nothing_can_be_kept(of_a_newer_version):
    mock, _ = senior(0)
    mock.answer()
    assert mock.asked is not None
    assert "newer version" in str(mock.report)
