"""Lesson 06 shows every patient and curve, and what it says of them in words is true of those there are."""

from __future__ import annotations

import re

import pytest
import torch
from torch.nn import functional

from amp_lessons import autocast, clinic, models
from amp_lessons.course.exercises.exercise import cell_id
from amp_lessons.course.quizzes import question
from tests.notebook_rules import source
from tests.stored_lessons import cells

CELLS, IDS = list(cells("06").values()), list(cells("06"))
NUMBERS = ("no", "one", "two", "three", "four")


def shown(view):
    """The cells that show a view, and what comes after its name there."""
    begins = f"views.{view}("
    return [source(cell).removeprefix(begins) for cell in CELLS if source(cell).startswith(begins)]


def cell(id):
    return source(CELLS[IDS.index(id)])


def test_patients_come_in_the_order_of_their_places_each_before_its_card_its_code_and_its_check():
    assert shown("Patient") == [f'"{patient.id}")' for patient in clinic.patients()]
    for patient in clinic.patients():
        (seen,) = (at for at, each in enumerate(CELLS) if source(each) == f'views.Patient("{patient.id}")')
        parts = [IDS.index(cell_id(patient.id, part)) for part in ("card", "stub", "check")]
        assert [seen, *parts] == sorted([seen, *parts]), patient.id
        assert parts[1] == parts[0] + 1, patient.id


def test_as_many_are_silent_as_the_question_says():
    patients, asked = clinic.patients(), question("breaks.silent")
    assert len(patients) == 14
    assert "fourteen" in asked.text
    heard = NUMBERS[sum(not patient.silent for patient in patients)]
    assert heard in asked.answer.text.lower().split()


def test_the_words_count_the_patients_and_exercises_of_the_core():
    core = [source(each).partition("(")[0] for each in CELLS[: IDS.index("deeper")]]
    assert (core.count("views.Patient"), core.count("views.ExerciseCard")) == (4, 3)
    assert "for the core, 3 exercises included" in source(CELLS[0])
    assert "ten more patients" in source(CELLS[0])
    assert "four of them in its core" in cell("silent")


def test_a_patient_that_is_named_by_its_number_is_the_one_that_is_meant():
    named = {
        (number, each): clinic.patients()[int(each) - 1].id
        for number in ("06", "07")
        for cell in cells(number).values()
        if cell["cell_type"] == "markdown"
        for each in re.findall(r"patient (\d+)", source(cell))
    }
    assert named == {("06", "12"): "heal_fatal_batch", ("07", "4"): "heal_nan_in_tests"}


def first_step_of_adam(width):
    """How far one step of the first patient, as it came, moves a weight, as a fraction of the rate."""
    model, lr = models.digits_classifier(width), 1e-3
    before = [p.detach().clone() for p in model.parameters()]
    batch = torch.rand(4, 64, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    clinic.patient("heal_standstill").broken(
        *(model, [batch], torch.optim.Adam(model.parameters(), lr=lr), functional.cross_entropy, 1),
        max_norm=0.01,
        device_type="cpu",
        dtype=torch.float16,
    )
    moved = [(p.detach() - b).abs() for p, b in zip(model.parameters(), before, strict=True)]
    weights = sum(p.numel() for p in model.parameters())
    size = 0.01 / 65536 / weights**0.5
    return sum(each.sum().item() for each in moved) / weights / lr, size / (size + 1e-8)


def test_adam_hides_clipping_before_unscaling_in_a_small_model_and_shows_it_in_a_large_one():
    """With a hundredth of the lesson's max_norm a model a hundredth as wide shows what a large one does."""
    small, of_small = first_step_of_adam(8)
    wide, of_wide = first_step_of_adam(512)
    assert small > 5 * wide
    for found, most in ((small, of_small), (wide, of_wide)):
        assert found <= most
    said = cell("heal-standstill-adam-why")
    assert "1.5·10⁻⁵/√n" in said
    assert float(f"{1 / 65536:.1e}") == 1.5e-5
    times = [1 + 1e-8 * 65536 * n**0.5 for n in (10**8, 5 * 10**9)]
    assert 7 < times[0] < 10
    assert 45 < times[1] < 60


def test_nan_leaves_a_running_mean_only_by_reset_running_stats():
    norm, good = torch.nn.BatchNorm1d(2), torch.arange(16.0).reshape(8, 2)
    norm(good * torch.inf)
    for _ in range(1000):
        norm(good)
    assert not norm.running_mean.isfinite().any()
    norm.reset_running_stats()
    for _ in range(100):
        norm(good)
    assert torch.allclose(norm.running_mean, good.mean(0), rtol=0.01)
    assert "`reset_running_stats()`" in cell("heal-nan-in-tests-why")


@pytest.mark.parametrize(("device_type", "casts_first"), [("cpu", True), ("cuda", False)])
def test_where_autocast_casts_the_outputs_before_the_loss(device_type, casts_first):
    logits = torch.randn(8, 32000, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.arange(8)
    exact = functional.cross_entropy(logits.float(), targets, reduction="none")
    rounded_once = (exact.bfloat16().float() - exact).abs().max()  # as CUDA's kernel, which sums in fp32
    assert 0.02 < rounded_once < 0.032
    assert exact.max() < 16
    with autocast.region(device_type, torch.bfloat16):
        loss = functional.cross_entropy(logits, targets, reduction="none")
    off = (loss - exact).abs().max()
    assert loss.dtype == torch.float32
    assert (off < 1e-4) == casts_first
    assert off < 0.08


@pytest.mark.parametrize("view", ["loss_curves", "CurveQuiz"])
def test_all_curves_are_shown_and_asked_and_the_healthy_ones_counted(view):
    assert shown(view) == ["range(1, 7))", "range(7, 13))"]
    healthy = [question(f"curves.{each}").answer.text.startswith("Healthy") for each in clinic.LOSS_CURVES]
    assert (sum(healthy[:6]), sum(healthy[6:])) == (1, 2)
    assert "In one of them nothing at all is wrong" in cell("curves")
    assert "In two of these six training runs nothing" in cell("deeper-curves")


def test_curves_that_are_said_to_look_alike_do():
    names = [clinic.LOSS_CURVES[number - 1] for number in (2, 5)]
    assert "Curves 2 and 5 have the same shape" in cell("curves-why")
    assert names == ["one_autocast", "infinite_gradient"]
    assert "Curves 7, 9 and 10 look alike" in cell("more-curves-why")
    for number in (7, 9, 10):
        losses = clinic.loss_curve(clinic.LOSS_CURVES[number - 1]).losses
        assert losses[-1] < 0.3 * losses[0]
