"""The bank: what its questions say, how long, and with which numbers."""

from __future__ import annotations

import re
from importlib import resources

import pytest
import yaml

from amp_lessons import interview
from amp_lessons.course.interview import bank
from amp_lessons.course.interview.proofs import placeholders

QUESTIONS = interview.QUESTIONS
IDS = [question.id for question in QUESTIONS]
OWN = [each for question in QUESTIONS for each in question.follow_ups if not isinstance(each, str)]
MOST_WORDS = 120  # what one can say in a minute
PROSE = ("question_template", "answer_template", "weak_answer")

# Digits in an answer that are names, not numbers: each is how the field writes the thing.
NAMES = re.compile(
    r"""(?<!\w)(?:
        (?:fp|bf|tf|float|bfloat)\d+s? | FP\d+ | TF\d+    # formats, as prose and as torch write them
        | (?:4|8|16|32|four|eight|sixteen)(?:-|[ ])bits?   # several formats at once
        | (?:MX|NV)FP\d+ | NF4 | E\d+M\d+ | E\d+M\d+FN | float8_\w+ | float4_\w+
        | L[12]                                            # a norm, a kind of weight decay
        | FSDP[12] | ZeRO-[123]                            # PyTorch's two FSDPs, DeepSpeed's three stages
        | GPT-2 | ResNet-50 | BERT | T5                    # models
        | [AH]100 | H200 | B200 | V100 | T4                # GPUs
        | log2 | int8 | INT[48] | x\d | mT5
    )(?!\w)""",
    re.VERBOSE,
)
# Written out, they are numbers too. One, two and three are grammar as often; a billion is a unit here.
NUMBER_WORDS = re.compile(
    r"\b(four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen|twenty|hundred|thousand)\b",
    re.IGNORECASE,
)


def test_ids_are_unique_and_begin_with_the_topic():
    assert len(set(IDS)) == len(IDS)
    assert all(re.fullmatch(rf"{question.topic}\.[a-z][a-z0-9_]*", question.id) for question in QUESTIONS)


def test_the_bank_is_as_large_and_as_varied_as_it_says():
    assert len(QUESTIONS) >= 100
    shares = {level: sum(q.level == level for q in QUESTIONS) / len(QUESTIONS) for level in interview.LEVELS}
    assert shares == pytest.approx({"entry": 0.35, "senior": 0.45, "staff": 0.2}, abs=0.06)
    assert {question.topic for question in QUESTIONS} == set(interview.TOPICS)
    assert {question.lesson for question in QUESTIONS} == {*(f"0{n}" for n in range(10)), "11"}


def test_every_file_is_a_topic_and_reads_the_same_without_the_fast_parser():
    files = [path for path in resources.files(bank).iterdir() if path.name.endswith(".yaml")]
    assert {path.name for path in files} == {f"{topic}.yaml" for topic in (*interview.TOPICS, "designs")}
    assert all(yaml.load(path.read_text("utf-8"), yaml.SafeLoader) for path in files)


def numbers_typed(template):
    """Return the numbers outside of placeholders, in digits and in words."""
    said = re.sub(r"\{[^{}]*\}", "", template)
    code = re.sub(r"`[^`]*`", "", said)  # names of functions, and what is passed to them
    prose = NAMES.sub("", code)
    return re.findall(r"\d+", prose) + NUMBER_WORDS.findall(prose)


@pytest.mark.parametrize("topic", interview.TOPICS)
def test_each_question_of_a_topic_is_whole_and_no_number_is_typed_into_it(topic):
    for question in (each for each in QUESTIONS if each.topic == topic):
        id, follow_ups = question.id, interview.follow_ups(question.id)
        assert question.level in interview.LEVELS, id
        assert all(getattr(question, name).strip() for name in PROSE), id
        assert numbers_typed(question.answer_template) == [], id
        assert bool(placeholders(question.question_template)) == question.asks_for_a_number, id
        for some in (question.points, question.wrong_beliefs, question.source):
            assert some, id
            assert all(isinstance(text, str) and text.strip() for text in some), id
        assert 2 <= len(question.points) <= 4, id
        assert any("https://" in source for source in question.source), id
        assert follow_ups, id
        assert question not in follow_ups, id
        for text in (question.question_template, *(each.question for each in follow_ups)):
            assert "?" in text or text.endswith("."), id


def test_a_typed_number_would_be_seen():
    assert numbers_typed("about 3 bytes") == ["3"]
    assert numbers_typed("fp16 ends at 65504") == ["65504"]
    assert numbers_typed("{count} in fp16, E4M3 and float8_e4m3fn on an H100, `lr=1e-3`") == []
    assert numbers_typed("sixteen bytes") == ["sixteen"]


def test_a_follow_up_of_a_question_alone_is_held_to_the_same():
    for follow_up in OWN:
        assert 30 <= len(follow_up.answer.split()) <= MOST_WORDS, follow_up.after
        assert 2 <= len(follow_up.points) <= 4, follow_up.after
        assert numbers_typed(follow_up.answer_template) == [], follow_up.after


def test_an_unknown_question_is_answered_with_near_ones():
    with pytest.raises(KeyError, match=r"called 'loss_scaling.bf61'; did you mean loss_scaling"):
        interview.question("loss_scaling.bf61")
    with pytest.raises(KeyError, match="no question"):
        interview.prove("nothing.of_the_kind")
