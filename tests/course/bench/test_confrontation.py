"""The source's claims beside predictions and recordings."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from amp_lessons.course.bench import confront, confrontation
from tests.course.bench.test_results import _recording, _result

pytestmark = pytest.mark.slow


def test_a_claim_is_confronted_with_the_prediction_and_what_was_recorded(monkeypatch):
    def predicted(step):
        assert (step.subject.name, step.batch, step.size) == ("GPT-2", 8, 1024)
        assert step.optimizer == "AdamW"
        return SimpleNamespace(peak_bytes={"fp32": 1000, "fp16": 870}[step.precision])

    monkeypatch.setattr(confrontation, "predict", predicted)
    recording = _recording(
        _result(peak_bytes=1000), _result("fp16", ms=5.0, peak_bytes=800), _result("fp16", "compiled", ms=4.0)
    )
    row = confront("GPT-2", [recording])
    assert (row.claim.gpu, row.claim.speedup, row.claim.memory_saving) == ("V100", 1.4, 0.35)
    assert (row.batch, row.predicted_memory_saving) == (8, pytest.approx(0.13))
    eager, compiled = row.measured
    assert eager.provenance == recording.provenance
    assert eager.memory_saving == pytest.approx(0.2)
    assert eager.speedup is not None
    assert eager.speedup.speedup == pytest.approx(2.0)
    assert (eager.mode, compiled.mode) == ("eager", "compiled")


def test_the_prediction_needs_no_recording():
    pytest.importorskip("transformers")
    row = confront("GPT-2", batch=1)
    assert row.measured == ()
    # The source claims 35 %. But weights, gradients and AdamW's state stay, and so do GELU's cubes in fp32.
    assert 0 < row.predicted_memory_saving < 0.2
