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


def on_a_cpu(model, **options):
    return recording(model, replace(GPU, device="Ryzen", device_type="cpu"), modes=("eager",), **options)


def also_in_bf16(found):
    fp16 = found.results["GPT-2", "fp16", "eager"]
    bf16 = replace(fp16, precision="bf16", samples_ms=tuple(5 * (1 + 0.001 * i) for i in range(24)))
    return replace(found, results={**found.results, ("GPT-2", "bf16", "eager"): bf16})


BOTH = ["GPT-2", "ResNet-50"]
# What is asked for, of which precision, and what was recorded.
TABLES = {
    "nothing recorded": ("fp16", list(SOURCE_MODELS), []),
    "nothing recorded, in bf16": ("bf16", ["GPT-2"], []),
    "one of two models recorded": ("fp16", BOTH, [recording("GPT-2")]),
    "the first recording that knows a model counts": (
        "fp16",
        ["GPT-2"],
        [recording("ResNet-50"), on_a_cpu("GPT-2", half_ms=50.0), recording("GPT-2")],
    ),
    "a small model does not stand beside full ones": (
        "fp16",
        BOTH,
        [recording("ResNet-50", modes=("eager",)), on_a_cpu("GPT-2", preset="small")],
    ),
    "a small model where it is all there is": ("fp16", ["GPT-2"], [on_a_cpu("GPT-2", preset="small")]),
    "of a CPU the measurement in bf16 counts": (
        "fp16",
        ["GPT-2"],
        [also_in_bf16(on_a_cpu("GPT-2", half_ms=50.0))],
    ),
    "noise is no speed-up": ("fp16", ["GPT-2"], [recording("GPT-2", modes=("eager",), half_ms=9.99)]),
}


def test_claims_stand_beside_what_is_predicted_and_what_was_recorded(golden):
    told = []
    for name, (precision, models, found) in TABLES.items():
        rows = source_table(precision, models=models, found=found).records
        told += [
            f"--- {name}",
            *(" | ".join(f"{key}: {value}" for key, value in row.items()) for row in rows),
        ]
    golden("source_table.txt", "\n".join(told))


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
