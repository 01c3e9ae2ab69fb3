"""The questions about symptoms: every way ends, and what stands at its end can be run."""

from __future__ import annotations

import contextlib
import io

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import models
from amp_lessons.clinic import causes, symptoms
from tests.test_packaging import ROOT

PATHS = tuple(symptoms.paths())
ENDS = {id(path.end): path.end for path in PATHS}.values()
EACH_END = pytest.mark.parametrize("end", ENDS, ids=lambda end: end.cause[:40])


def somebodys_script(dtype=torch.float16):
    """What an end's cell may speak of, on the digits."""
    torch.set_num_threads(1)
    device = torch.device("cpu")
    model = models.digits_classifier(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    batch = torch.rand(8, 64, generator=torch.Generator().manual_seed(0)), torch.arange(8)

    def train(steps=3):
        for _ in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = F.cross_entropy(model(batch[0]), batch[1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    return {**locals(), "loss_fn": F.cross_entropy, "torch": torch}


def test_every_symptom_of_the_lesson_is_there_and_every_way_ends_within_four_questions():
    assert len(symptoms.SYMPTOMS.answers) == 8
    assert len(PATHS) >= 25
    assert max(len(path.answered) for path in PATHS) <= 4


def test_who_trains_in_bf16_never_ends_where_only_fp16_is_wrong():
    only_fp16 = (causes.FORWARD, causes.HIDDEN, causes.PAST_SCALER, causes.UNDERFLOW, causes.GROWS)
    in_bf16 = [path for path in PATHS if any("bf16" in answer.text for _, answer in path.answered)]
    assert len(in_bf16) >= 9
    assert not [path.end.cause for path in in_bf16 if path.end in only_fp16]
    for path in PATHS:  # and no way leads there but one on which fp16, or its scaler, was answered
        said = " ".join(answer.text for _, answer in path.answered)
        assert path.end not in only_fp16 or "fp16" in said, said


def test_nan_asks_for_the_dtype_first():
    after_nan = symptoms.SYMPTOMS.answers[0]
    assert "NaN" in after_nan.text
    assert [answer.text for answer in after_nan.then.answers] == ["fp16", "bf16", "fp32"]


def test_no_question_repeats_an_answer_or_leaves_no_choice():
    for question in {id(q): q for path in PATHS for q, _ in path.answered}.values():
        texts = [answer.text for answer in question.answers]
        assert len(texts) == len(set(texts)) >= 2, question.text
        assert question.text.endswith(("?", "."))


def test_every_end_that_is_written_is_reached():
    written = [each for each in vars(causes).values() if isinstance(each, causes.End)]
    assert {id(end) for end in written} == {id(end) for end in ENDS}


@EACH_END
def test_an_end_says_cause_cure_and_a_lesson_that_there_is(end):
    assert len(end.cause.split()) >= 8
    assert len(end.cure.split()) >= 5
    assert list((ROOT / "notebooks").glob(f"{end.lesson}_*.ipynb")), f"there is no lesson {end.lesson}"


@EACH_END
def test_the_cell_at_an_end_runs_and_shows_something(end):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(end.code, "<cell>", "exec"), somebodys_script())
    assert said.getvalue().strip()
    assert len(end.code.splitlines()) <= 8
