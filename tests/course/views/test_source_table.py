import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest

from amp_lessons.course.bench import SOURCE_MODELS, Recording, Result, Setup, calculator, confrontation
from amp_lessons.course.views import source_table

GPU = Setup("NVIDIA H200", "cuda", "2.11.0", "CUDA 13.0", "3.12.1", "5.0.0", "Xeon", 16)
PEAKS = {"fp32": 1000, "fp16": 870, "bf16": 860}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(
        confrontation, "predict", lambda question: SimpleNamespace(peak_bytes=PEAKS[question.precision])
    )


def recording(model, setup=GPU, preset="full", modes=("eager", "compiled"), half_ms=5.0):
    found = {}
    for precision, ms, peak in (("fp32", 10.0, 1000), ("tf32", 6.0, 1000), ("fp16", half_ms, 600)):
        for mode in modes:
            key = (model, precision, mode)
            samples = tuple(ms * (1 + 0.001 * i) for i in range(24))
            when = "2026-03-01T10:00:00+00:00"
            found[key] = Result(*key, "measured", 8, when, samples_ms=samples, peak_bytes=peak)
    return Recording(setup, preset, found)


def test_every_model_of_the_source_is_there_with_its_claim():
    rows = source_table(found=()).records
    assert [row["model"] for row in rows] == list(SOURCE_MODELS)
    for row in rows:
        claim = SOURCE_MODELS[row["model"]].claim
        assert row["speed claimed"] == f"{claim.speedup}x on {claim.gpu}"
        assert row["memory claimed"] == f"{100 * claim.memory_saving:.0f} %"


def test_the_prediction_is_that_of_the_precision():
    assert {row["predicted"] for row in source_table(found=()).records} == {"13 %"}
    assert {row["predicted"] for row in source_table("bf16", found=()).records} == {"14 %"}


def test_what_was_not_measured_names_the_command():
    (row,) = source_table(models=["GPT-2"], found=()).records
    assert row["where"] == "not measured yet: `amp-lessons bench --models GPT-2`"
    assert row["over fp32"] == row["over TF32"] == row["measured memory"] == "—"


def test_what_was_recorded_says_where_when_and_with_what():
    table = source_table(models=["GPT-2", "ResNet-50"], found=[recording("GPT-2")])
    eager, compiled, other = table.records
    assert eager["where"] == "fp16, full size, eager, recorded on NVIDIA H200, 2026-03-01, torch 2.11.0"
    assert compiled["where"].startswith("fp16, full size, compiled, recorded on NVIDIA H200")
    assert eager["over fp32"] == compiled["over fp32"] == "2.00x (1.96 to 2.04)"
    assert eager["over TF32"] == "1.20x (1.18 to 1.22)"
    assert other["over fp32"] == other["over TF32"] == "—"
    assert eager["measured memory"] == "40 %"
    assert compiled["memory claimed"] == ""


def test_the_first_recording_that_knows_a_model_counts():
    cpu = recording("GPT-2", replace(GPU, device="Ryzen", device_type="cpu"), modes=("eager",), half_ms=50.0)
    table = source_table(models=["GPT-2"], found=[recording("ResNet-50"), cpu, recording("GPT-2")])
    (row,) = table.records
    assert row["where"] == "fp16, full size, eager, recorded on Ryzen, 2026-03-01, torch 2.11.0"
    assert row["over fp32"].startswith("0.20x")


def test_a_small_model_does_not_stand_beside_full_ones_and_stands_where_it_is_all_there_is():
    small = recording("GPT-2", replace(GPU, device="Ryzen", device_type="cpu"), "small", ("eager",))
    both = source_table(
        models=["GPT-2", "ResNet-50"], found=[recording("ResNet-50", modes=("eager",)), small]
    )
    assert [row["where"].split(",")[0] for row in both.records] == [
        "not measured yet: `amp-lessons bench --models GPT-2`",
        "fp16",
    ]
    (alone,) = source_table(models=["GPT-2"], found=[small]).records
    assert "small size" in alone["where"]


def test_of_a_cpu_the_measurement_in_bf16_counts():
    cpu = recording("GPT-2", replace(GPU, device="Ryzen", device_type="cpu"), modes=("eager",), half_ms=50.0)
    key = ("GPT-2", "bf16", "eager")
    fast = replace(
        cpu.results["GPT-2", "fp16", "eager"],
        precision="bf16",
        samples_ms=tuple(5 * (1 + 0.001 * i) for i in range(24)),
    )
    (row,) = source_table(models=["GPT-2"], found=[replace(cpu, results={**cpu.results, key: fast})]).records
    assert row["where"].startswith("bf16, full size, eager, recorded on Ryzen")
    assert row["over fp32"].startswith("2.00x")


def test_noise_is_no_speed_up():
    (row,) = source_table(
        models=["GPT-2"], found=[recording("GPT-2", modes=("eager",), half_ms=9.99)]
    ).records
    assert row["over fp32"].startswith("no difference (")


def test_without_transformers_the_claims_remain_and_the_command_is_said(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    calculator.predict.cache_clear()
    calculator._built.cache_clear()
    table = source_table(models=["GPT-2"], found=[recording("GPT-2")])
    assert table.records[0]["predicted"] == "—"
    assert table.records[0]["measured memory"] == "40 %"
    assert "python -m pip install 'amp-lessons[models]'" in table.caption


def test_the_default_is_what_the_checkout_holds(monkeypatch):
    monkeypatch.setattr(
        "amp_lessons.course.views.widgets.tables.recordings", lambda: (recording("BERT-Large"),)
    )
    (row, *_) = source_table(models=["BERT-Large"]).records
    assert "recorded on NVIDIA H200" in row["where"]
