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
from tests.course.keep import keep


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


LEVELS = interview.LEVELS
MANY = 1000


def level_of(asked):
    return LEVELS.index(interview.question(asked.question_id).level)


@pytest.fixture(scope="module")
def plans():
    """A thousand interviews of each level, of 45 minutes."""
    return {level: [list(planned(level, 45, seed)) for seed in range(MANY)] for level in LEVELS}


@pytest.mark.parametrize("level", LEVELS)
def test_no_topic_is_planned_twice_and_the_time_adds_up(level, plans):
    for plan in plans[level]:
        topics = [asked.topic for asked in plan]
        assert len(set(topics)) == len(topics)
        minutes = sum(asked.minutes + (asked.kind != "code") * FOLLOW_UP_MINUTES for asked in plan)
        assert 40 < minutes <= 45
        assert [asked.kind for asked in plan[-2:]] == ["estimate", "code"]


@pytest.mark.parametrize("level", LEVELS)
def test_questions_and_numbers_are_of_the_level_or_one_below(level, plans):
    most = LEVELS.index(level)
    for plan in plans[level]:
        first, *others, _ = (level_of(asked) for asked in plan[:-1])
        assert first == max(0, most - 1), "a warm-up"
        assert {*others} <= {most}, "each topic has questions of each level"
        assert level_of(plan[-2]) in (most, max(0, most - 1))


def test_every_exercise_is_asked_for_and_every_number_of_the_level(plans):
    coded = {plan[-1].exercise.id for some in plans.values() for plan in some}
    assert coded == {exercise.id for exercise in exercises.catalog()}
    assert max(plan[-1].minutes for plan in plans["senior"]) == 30
    numbers = {question.id for question in interview.QUESTIONS if question.asks_for_a_number}
    assert {plan[-2].question_id for some in plans.values() for plan in some} == numbers


def test_patients_come_in_variants(plans):
    stubs = {}
    for plan in plans["senior"]:
        if plan[-1].exercise.is_patient:
            stubs.setdefault(plan[-1].exercise.id, set()).add(plan[-1].stub)
    assert min(map(len, stubs.values())) > 1
    asked = next(plan[-1] for plan in plans["senior"] if plan[-1].exercise.is_patient)
    assert asked.exercise.title not in asked.text, "no name that can be looked up"


@pytest.mark.parametrize("level", LEVELS)
def test_what_follows_is_of_the_level_of_its_question_or_one_below(level, plans):
    for seed, plan in enumerate(plans[level]):
        for asked in plan[:-1]:
            follows = follow_up(asked, tuple(range(len(asked.points))), {asked.question_id}, seed)
            if follows.question_id:
                assert level_of(follows) <= LEVELS.index(level)
                assert level_of(asked) - 1 <= level_of(follows) <= level_of(asked)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("minutes", [5, 20, 25, 30, 60, 90, 180])
def test_what_is_planned_fits_any_time(level, minutes):
    for seed in range(20):
        plan = list(planned(level, minutes, seed))
        assert sum(asked.kind == "code" for asked in plan) == (minutes >= 25)
        assert len({asked.topic for asked in plan}) == len(plan)
        assert sum(a.minutes + (a.kind != "code") * FOLLOW_UP_MINUTES for a in plan) <= minutes
        assert sum(asked.minutes for asked in plan if asked.kind == "code") <= 2 / 3 * minutes


def test_all_covered_leads_deeper():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(*range(len(first.points)))
    assert mock.asked.follows == first.question_id
    assert first.points[0] not in mock.asked.text, "that was read a moment ago"


def test_each_follow_up_is_asked_by_some_interviewer():
    """A follow-up that no seed leads to would be written for nobody."""
    for question in interview.QUESTIONS:
        asked = asked_question(question)
        everything = tuple(range(len(asked.points)))
        found = {named(follow_up(asked, everything, {question.id}, seed)) for seed in range(60)}
        suited = {each.question if isinstance(each, FollowUp) else each.id for each in suiting(question)}
        if suited:
            assert found == suited, question.id
        else:
            assert all("A colleague says" in each for each in found)


def named(asked):
    """Return what tells one follow-up from another, without a proof being run."""
    return asked.question_id or asked.wording


def suiting(question):
    return [each for each in interview.follow_ups(question.id) if suits(each, question)]


def suits(each, question):
    """Whether a follow-up is for this question alone, or of its level or the one below."""
    below = LEVELS.index(question.level) - LEVELS.index(getattr(each, "level", question.level))
    return below in (0, 1)


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
    assert progress.read().reviews == {}, "it is part of another card"
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


def test_of_a_point_left_out_it_is_asked_why_it_is_so():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(*range(1, len(first.points)))
    assert mock.asked.text.startswith(f"You left this out: “{first.points[0]}”. Why")
    assert first.points[0] not in mock.asked.points, "its words were read in the rubric"
    assert mock.asked.answer == first.answer


def test_the_model_answer_comes_when_nothing_follows_any_more():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(0)
    assert mock.closed == ()
    mock.answer(0)
    assert [turn.asked for turn in mock.closed] == [first, mock.turns[1].asked]
    mock.answer()
    assert [turn.asked for turn in mock.closed] == [mock.turns[2].asked]
    while mock.asked:
        led_one(mock)
    assert mock.closed[-1].asked.kind == "code"


def test_an_answer_can_be_taken_back_and_so_can_those_before():
    clock = Clock()
    mock = Mock("senior", 45, 3, clock)
    assert not mock.take_back()
    first, coming = mock.asked, list(mock._coming)
    keep("review", first.question_id, "easy")
    clock.at += 30
    mock.answer()
    mock.answer(0)
    while mock.turns:
        assert mock.take_back()
    assert (mock.asked, mock._coming, mock.closed) == (first, coming, ())
    assert {id: [each.grade for each in kept] for id, kept in progress.read().reviews.items()} == {
        first.question_id: ["easy"]
    }
    clock.at += 10
    mock.answer(*range(len(first.points)))
    assert mock.turns[0].seconds == 40, "the clock ran on"
    assert mock.asked.follows == first.question_id


def test_the_last_answer_of_all_can_be_taken_back():
    mock = Mock("entry", 5, 0, Clock())
    while mock.asked:
        last = mock.asked
        led_one(mock)
    assert mock.take_back()
    assert mock.asked == last


def test_mocks_leave_a_days_new_cards_alone():
    new = len(interview.Deck().new())
    led(Mock("senior", 45, 0, Clock()), none_of)
    deck = interview.Deck()
    assert len(deck.new()) == new
    deck.grade(deck.new()[0].id, "good")
    assert len(deck.new()) == new - 1


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


def test_who_was_fast_may_be_asked_more_and_the_same_again_the_next_time():
    clock = Clock()
    mock, again = Mock("senior", 45, 3, clock), Mock("senior", 45, 3, clock)
    for each in (mock, again):
        with pytest.raises(ValueError, match="after the last one"):
            each.ask_another()
        led(each, none_of)
    topics = {turn.asked.topic for turn in mock.turns}
    texts = set(led(Mock("senior", 45, 3, Clock()), none_of))
    for _ in range(6):
        assert mock.has_another
        mock.ask_another()
        again.ask_another()
        assert mock.asked == again.asked
        assert interview.question(mock.asked.question_id).level == "senior"
        assert mock.asked.text not in texts
        topics.add(mock.asked.topic)
        texts.add(mock.asked.text)
        mock.answer()
        again.answer()
    assert len(topics) == 13, "those that were not asked about come first"
    clock.at = 60 * 41
    assert not mock.has_another, "a question takes five minutes"


def test_nothing_more_is_asked_of_who_has_ended_it_and_nothing_beside_a_design():
    mock = Mock("senior", 45, 3, Clock())
    mock.end()
    assert not mock.has_another
    design = interview.DesignRound("pretrain", Clock())
    led(design, all_of)
    assert not design.has_another


def test_of_a_point_left_out_the_model_answers_own_sentence_is_shown():
    asked = asked_question(interview.question("loss_scaling.two_optimizers"))
    assert asked.sentence == ""
    told = set()
    for place in range(len(asked.points)):
        covered = tuple(i for i in range(len(asked.points)) if i != place)
        told.add(follow_up(asked, covered, set(), 0).sentence)
    assert told - {""}
    assert all(sentence in asked.answer for sentence in told)


def test_the_answer_has_a_sentence_for_most_points_of_the_bank():
    found = [
        bool(nearest_sentence(point, q.answer_template)) for q in interview.QUESTIONS for point in q.points
    ]
    assert sum(found) > len(found) / 2


@pytest.mark.parametrize(
    ("point", "sentence"),
    [
        (
            "nothing raises",
            "One calls `unscale_`, and clips after unscaling. "
            "Wrong, it changes how strongly is clipped, and nothing raises.",
        ),
        ("clip after unscaling", "One calls `unscale_`, and clips after unscaling."),
        ("overflow of activations", ""),
        ("overflow is clipped", ""),
        ("it clips after", "One calls `unscale_`, and clips after unscaling."),
    ],
)
def test_a_sentence_is_about_a_point_if_it_has_more_than_half_of_its_words(point, sentence):
    answer = (
        "One calls `unscale_`, and clips after unscaling. "
        "Wrong, it changes how strongly is clipped, and nothing raises."
    )
    assert nearest_sentence(point, answer) == sentence


def test_a_sentence_without_a_reason_comes_with_the_one_before_and_one_with_a_reason_alone():
    answer = "A power of two moves only the exponent. Nothing but an overflow comes out different."
    assert nearest_sentence("an overflow comes out", answer) == answer
    reason = "Other sums differ. Nothing but an overflow comes out different, because the mantissa stays."
    assert nearest_sentence("an overflow comes out", reason) == reason.partition("differ. ")[2]


def test_with_topics_all_is_of_them_and_so_is_what_comes_besides():
    topics = ("language_models",)
    for minutes in (20, 45):
        asked = list(planned("senior", minutes, 3, topics))
        assert len(asked) >= 3
        assert {each.topic for each in asked} <= {*topics, "coding"}
        assert {each.lesson for each in asked} == {"11"}
        assert len({each.question_id for each in asked if each.question_id}) >= len(asked) - 1
        more = another("senior", asked, 0, topics)
        assert more is not None
        assert more.topic == "language_models"
    assert Mock("senior", 20, 3, topics=topics).asked.topic == "language_models"
    with pytest.raises(ValueError, match="did you mean language_models"):
        Mock("senior", 20, 3, topics=("language_model",))


def test_code_that_is_asked_for_comes_with_good_code():
    exercise = shelf.find("importance_weights")
    assert asked_for_code(exercise).solution == exercise.solution_source != exercise.stub
    patient = next(each for each in exercises.catalog() if each.is_patient)
    ill = asked_for_code(patient, seed=1)
    assert ill.solution == clinic.patient(patient.id, 1).mended_source != ill.stub


def test_a_sentence_that_says_no_more_than_the_point_comes_with_the_next():
    answer = "The limit is too low. Nothing raises. With SGD the model hardly learns."
    assert nearest_sentence("nothing raises", answer) == "Nothing raises. With SGD the model hardly learns."


def test_a_point_that_was_told_when_asked_for_need_not_be_repeated():
    for then, repeated in ((all_of, False), (none_of, True)):
        mock = Mock("senior", 45, 3, Clock())
        first = mock.asked
        mock.answer(*range(1, len(first.points)))
        mock.answer(*then(len(mock.asked.points)))
        assert [turn.asked for turn in mock.report.to_repeat] == [first] * repeated
    mock = Mock("senior", 45, 3, Clock())
    mock.answer(*range(2, len(first.points)))
    mock.answer(0, 1)
    (turn,) = mock.report.to_repeat
    assert mock.report.left_out(turn) == first.points[1:2]


def test_ending_at_a_follow_up_gives_the_model_answer():
    mock = Mock("senior", 45, 3, Clock())
    first = mock.asked
    mock.answer(0)
    mock.end()
    assert [answer for _, answer in mock.answers] == [first.answer]


def test_a_page_of_the_report_has_each_model_answer_once():
    mock = Mock("senior", 20, 3, Clock())
    led(mock, first_of)
    said = [answer for _, answer in mock.report.model_answers]
    assert len(said) == len(set(said)) > 2
    shown = mock.report.appendix("h2")
    assert shown.count("<h2>Model answers</h2>") == 1
    assert all(str(prose.as_html(answer)) in shown for answer in said)


def test_less_than_a_minute_is_told_in_seconds():
    mock = Mock("senior", 20, 3, Clock())
    mock.clock.at = 40
    mock.answer()
    assert "1 question in 40 seconds, " in mock.report.heading


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
    with pytest.raises(ValueError, match=f"asked for is {wanted.id}"):
        mock.hand_in(exercises.Report(another, "", ()))
    wrong = exercises.Report(wanted.id, wanted.title, (Finding("code", "failed", "the scale never grows"),))
    right = exercises.Report(wanted.id, wanted.title, (Finding("code", "passed", "it holds"),))
    mock.hand_in(wrong)
    assert mock.exercise == wanted, "it may be handed in again"
    assert "the scale never grows" not in str(mock.report)
    mock.hand_in(right)
    assert mock.asked is None
    assert mock.turns[-1].hand_ins == (wrong, right)
    assert "passed, 1 failed hand-in" in " ".join(str(mock.report).split())
    mock.take_back()
    assert mock.exercise == wanted
    mock.end()  # without giving up
    said = " ".join(str(mock.report).split())
    assert "not passed, 1 failed hand-in" in said
    assert "The last check said: the scale never grows" in said


def test_code_weighs_as_long_as_it_takes():
    mock = next(
        m for m in (Mock("staff", 45, seed, Clock()) for seed in range(99)) if code_of(m).minutes == 30
    )
    while mock.asked.kind != "code":
        led_one(mock)
    mock.hand_in(True)
    asked = sum(turn.asked.minutes for turn in mock.turns)
    assert mock.report.points == pytest.approx(30 / asked)
    assert mock.report.points > 0.6
    assert mock.report.strengths == ("coding",)


def code_of(mock):
    return mock._coming[-1]


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
    assert [review.grade for review in progress.read().reviews.get(first, ())] == ["again"]


def test_it_goes_on_where_nothing_can_be_kept(progress_home):
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
    mock = Mock("senior", 45, 0, Clock())
    mock.answer()
    assert mock.asked is not None
    assert "newer version" in str(mock.report)
