"""The stream of steps: lines that equal what the audit saw, while the training runs, or TensorBoard's."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict

import pytest
import torch

from amp_lessons import audit
from amp_lessons._base.typed_json import finite
from amp_lessons.audit.numbers.sampler import Sampler
from tests.audit.trainings import loop, perceptron

pytestmark = pytest.mark.filterwarnings("ignore")

with_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)
without_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is not None, reason="tensorboard is installed"
)


def trained(log, every=2, watching=True):
    torch.manual_seed(0)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    if not watching:
        return loop(model, optimizer, torch.float16, scaler, poisoned=True)
    with audit.watch(model, every=every, log=log) as seen:
        loop(model, optimizer, torch.float16, scaler, poisoned=True)
    return seen


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
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
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
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lines = []
    with audit.watch(model, log=str(tmp_path / "run.jsonl")):
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            lines.append(len(lines_of(tmp_path / "run.jsonl")))
    assert lines == [1, 2, 3]


def test_numbers_on_a_device_wait_for_the_step_that_is_looked_at(tmp_path, monkeypatch):
    """Here no number lies on a device: it is said of each."""
    waited = []
    original = Sampler.steps_from

    def steps_from(self, first, wait):
        for line in self._lines[first:]:
            monkeypatch.setattr(type(line), "known", property(lambda _: False))
        waited.append(wait)
        return original(self, first, wait)

    monkeypatch.setattr(Sampler, "steps_from", steps_from)
    sizes = []
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.watch(model, every=3, log=tmp_path / "run.jsonl"):
        for _ in range(5):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            sizes.append(len(lines_of(tmp_path / "run.jsonl")))
    assert sizes == [1, 1, 1, 4, 4]
    assert [line["index"] for line in lines_of(tmp_path / "run.jsonl")] == [0, 1, 2, 3, 4]


def test_a_log_changes_nothing(tmp_path):
    seen = trained(tmp_path / "run.jsonl")
    alone = trained(None, watching=False)
    assert repr([step.loss for step in seen.steps]) == repr(alone)


@without_tensorboard
def test_without_tensorboard_a_folder_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=r"pip install tensorboard.*\.jsonl"):
        trained(tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
    trained(tmp_path / "run.jsonl")  # and the next watch can begin


@with_tensorboard
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
