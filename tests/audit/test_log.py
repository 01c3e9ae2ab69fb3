"""The stream of steps: lines that equal what the audit saw, while the training runs, or TensorBoard's."""

from __future__ import annotations

import importlib.util
import json
from contextlib import nullcontext
from dataclasses import asdict

import pytest
import torch

from amp_lessons import audit
from amp_lessons._base.typed_json import finite
from amp_lessons.audit.numbers.sampler import Sampler
from tests.audit.trainings import apply, loop, perceptron

pytestmark = pytest.mark.filterwarnings("ignore")

HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None


def trained(log, every=2, watching=True):
    torch.manual_seed(0)
    model, scaler = perceptron(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model, every=every, log=log) if watching else nullcontext() as seen:
        losses = loop(model, optimizer, torch.float16, scaler, poisoned=True)
    return seen or losses


def lengths_at_each_step(log, steps, every=10):
    """Return how many lines the log has after each step of another training."""
    model = torch.nn.Linear(4, 2)
    optimizer, lengths = torch.optim.SGD(model.parameters(), lr=0.1), []
    with audit.watch(model, every=every, log=log):
        for _ in range(steps):
            apply(model(torch.randn(2, 4)).sum(), optimizer)
            lengths.append(len(lines_of(log)))
    return lengths


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_each_line_is_the_step_that_the_audit_saw(tmp_path):
    seen = trained(tmp_path / "run.jsonl")
    lines = lines_of(tmp_path / "run.jsonl")
    fields = dict.fromkeys(asdict(seen.steps[0]))
    assert [{name: line[name] for name in fields} for line in lines] == [
        finite(asdict(s)) for s in seen.steps
    ]
    assert [line["happened"] for line in lines] == [True, True, False, True, True, True]
    assert lines[2]["loss"] in ("NaN", "Infinity"), "what JSON has no number for is in words"


def test_steps_that_are_looked_at_closely_have_their_layers(tmp_path):
    seen = trained(tmp_path / "run.jsonl", every=3)
    lines = lines_of(tmp_path / "run.jsonl")
    assert [bool(line["layers"]) for line in lines] == [step.sampled for step in seen.steps]
    told, layer = lines[3]["layers"]["0"], seen.layers["0"].history[-1]
    assert layer.step == 3
    assert told["norm"] == layer.norm
    assert told["lost"]["as trained"] == layer.census.underflow_norm_fraction
    assert told["lost"]["fp8_e4m3"] == layer.counterfactual["fp8_e4m3"].underflow_norm_fraction


def test_a_finding_stands_in_the_line_of_the_step_that_showed_it_and_in_no_other(tmp_path):
    torch.manual_seed(0)
    model, scaler = perceptron(), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model, log=tmp_path / "run.jsonl"):
        for step in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = model(torch.randn(6, 8)).float().square().mean()
            scaler.scale(loss).backward()
            if step >= 2:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    found = [line["findings"] for line in lines_of(tmp_path / "run.jsonl")]
    assert found == [[], [], ["clip_before_unscale"], []]


def test_a_line_is_there_as_soon_as_its_step_is_over(tmp_path):
    assert lengths_at_each_step(tmp_path / "run.jsonl", 3) == [1, 2, 3]


def test_numbers_on_a_device_wait_for_the_step_that_is_looked_at(tmp_path, monkeypatch):
    """Here no number lies on a device: it is said of each."""
    original = Sampler.steps_from

    def steps_from(self, first, wait):
        for line in self._lines[first:]:
            monkeypatch.setattr(type(line), "known", property(lambda _: False))
        return original(self, first, wait)

    monkeypatch.setattr(Sampler, "steps_from", steps_from)
    assert lengths_at_each_step(tmp_path / "run.jsonl", 5, every=3) == [1, 1, 1, 4, 4]
    assert [line["index"] for line in lines_of(tmp_path / "run.jsonl")] == [0, 1, 2, 3, 4]


def test_a_log_changes_nothing(tmp_path):
    seen = trained(tmp_path / "run.jsonl")
    alone = trained(None, watching=False)
    assert repr([step.loss for step in seen.steps]) == repr(alone)


@pytest.mark.skipif(HAS_TENSORBOARD, reason="tensorboard is installed")
def test_without_tensorboard_a_folder_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=r"pip install tensorboard.*\.jsonl"):
        trained(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    trained(tmp_path / "run.jsonl")  # and the next watch can begin


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="tensorboard is not installed")
def test_tensorboard_has_the_same_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = trained(tmp_path / "runs")
    events = EventAccumulator(str(tmp_path / "runs")).Reload()
    scales = events.Scalars("optimizer 1/scale")
    assert [each.value for each in scales] == [step.scale for step in seen.steps]
    assert [each.step for each in scales] == [step.index for step in seen.steps]
    assert [each.value for each in events.Scalars("optimizer 1/skipped")] == [0, 0, 1, 0, 0, 0]
    norms = [step.gradient_norm for step in seen.steps if step.gradient_norm is not None]
    assert [each.value for each in events.Scalars("optimizer 1/gradient_norm")] == pytest.approx(norms)
    assert "lost as trained/0" in events.Tags()["scalars"]


def test_a_log_is_named():
    with pytest.raises(TypeError, match="log is the name of a file"):
        trained(1)
