"""A recording changes nothing of what it records, and a file of one is read as it was written, or refused."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from amp_lessons import audit
from amp_lessons.audit.comparing.recording import How, Recording
from amp_lessons.audit.comparing.sketches import sketch
from tests.audit.test_watch_changes_nothing import assert_same
from tests.audit.trainings import TRAININGS

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


def run(name):
    torch.manual_seed(0)
    random.seed(0)
    return TRAININGS[name](), random.random()


@pytest.mark.few
@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_the_same_bit_for_bit_and_recorded_the_same_twice(name):
    alone = run(name)
    recordings = []
    for _ in range(2):
        with audit.recording(steps=4) as seen:
            recorded = run(name)
        assert_same(alone, recorded)
        recordings.append(seen.recording)
    one, other = recordings
    assert len(one.steps) >= 2
    assert not [each for each in one.not_seen if "trouble" in each]
    assert any("compiled" in each for each in one.not_seen) == name.startswith("compiled")
    comparison = audit.compare(one, other)
    assert comparison.obstacle == ""
    assert comparison.parted is None
    assert comparison.as_explained


def test_nothing_is_left_on_the_model_or_in_pytorch():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters())
    scaler_step = torch.amp.GradScaler.step
    with audit.recording(model):
        assert torch.amp.GradScaler.step is not scaler_step
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    assert torch.amp.GradScaler.step is scaler_step
    assert not torch.nn.modules.module._has_any_global_hook()
    assert not any(module._forward_hooks for module in model.modules())
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters() if p._post_accumulate_grad_hooks)


def small():
    """Record three steps of a training with a loss module and a scaler."""
    model, loss_fn = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    tensors = []
    with audit.recording(model, steps=2) as seen:
        for _ in range(3):
            output = model(torch.randn(5, 4))
            output.retain_grad()
            scaler.scale(loss_fn(output, torch.tensor([0, 1, 2, 0, 1]))).backward()
            tensors.append((output.detach(), output.grad / 2.0**12, model[2].weight.detach().clone()))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return seen.recording, tensors


def test_what_is_recorded_is_what_was_computed_with_the_loss_scale_taken_out():
    recording, tensors = small()
    assert recording.steps == (0, 1)
    calls = {(call.step, call.module): call for call in recording.calls}
    for step in recording.steps:
        output, gradient, weight = tensors[step]
        value = calls[step, "2"].outputs["0"]
        of_gradient = recording.values[value].gradient
        named = {w.name: w for w in recording.weights if w.step == step}
        for number, tensor in ((value, output), (of_gradient, gradient), (named["2.weight"].value, weight)):
            assert recording.values[number].shape == tuple(tensor.shape)
            np.testing.assert_allclose(recording.sketches[number], sketch(tensor).sums, rtol=1e-5, atol=1e-7)
    assert calls[0, "CrossEntropyLoss"].inputs["0"] == calls[0, "2"].outputs["0"]
    assert {weight.step for weight in recording.weights} == {0, 1, 2}  # what the last step made of them too


def linear(trained, factor_of=lambda step: 1.0, **how):
    """Record a linear layer trained with a scaler, by losses that are multiplied by something."""
    model = nn.Linear(4, 2)
    optimizer, scaler = torch.optim.SGD(model.parameters()), torch.amp.GradScaler("cpu")
    with audit.recording(model, **how) as seen:
        for step in range(trained):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(3, 4)).sum() * factor_of(step)).backward()
            scaler.step(optimizer)
            scaler.update()
    return seen.recording


@pytest.mark.parametrize(("every", "steps"), [(1, range(18)), (7, (0, 7, 14)), (None, (0, 1, 2, 4, 8, 16))])
def test_every_so_many_steps_are_recorded_or_ever_rarer_ones(every, steps):
    recording = linear(20, steps=18, every=every)
    assert recording.steps == tuple(steps)
    assert {call.step for call in recording.calls} == set(steps)
    assert {weight.step for weight in recording.weights} == {*steps, *(step + 1 for step in steps)}


def test_steps_that_a_scaler_skips_are_counted():
    recording = linear(3, lambda step: torch.inf if step == 1 else 1.0)
    assert (recording.steps, recording.skipped) == ((0, 1, 2), (1,))


def test_a_file_is_read_as_it_was_written(tmp_path):
    recording, _ = small()
    recording.save(tmp_path / "run.json")
    read = Recording.load(tmp_path / "run.json")
    assert read == recording
    assert np.array_equal(read.sketches, recording.sketches)
    assert (tmp_path / "run.json").stat().st_size < 1000 * len(recording.values)


def changed(recording, **entries):
    return json.dumps(json.loads(recording.as_json()) | entries)


def packed(data):
    return base64.b64encode(data).decode()


MISSING = {"step": 0, "name": "w", "module": "", "value": 10**9}
HOSTILE = {
    "nothing": (lambda r: "", "is no JSON"),
    "a list": (lambda r: "[]", '"schema" would be'),
    "another document": (lambda r: '{"schema": "amp-lessons audit report"}', '"schema" would be'),
    "nested without end": (lambda r: "[" * 100_000, "nested too deeply"),
    "a newer version": (lambda r: changed(r, version=2), "of version 2, and only version 1"),
    "no sketches": (lambda r: changed(r, sketches=None), "its sketches cannot be read"),
    "half a sketch": (lambda r: changed(r, sketches=packed(b"x" * 9)), "cannot be read"),
    "a sketch too few": (
        lambda r: changed(r, sketches=packed(r.sketches[1:].tobytes())),
        "not one sketch for",
    ),
    "NaN": (lambda r: changed(r, sketches=packed((r.sketches * np.nan).tobytes())), "not finite"),
    "values of another type": (lambda r: changed(r, values=[3]), "damaged"),
    "no how": (lambda r: changed(r, how=None), "damaged"),
    "a value that is not there": (lambda r: changed(r, weights=[MISSING]), "values that it does not have"),
    "no text": (lambda r: "\udcff", "it is no text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_recording_is_refused_in_a_sentence(tmp_path, name):
    make, answer = HOSTILE[name]
    path = tmp_path / "run.json"
    path.write_text(make(small()[0]), "utf-8", "surrogateescape")
    with pytest.raises(ValueError, match=answer) as raised:
        audit.compare(path, path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(("arguments", "raised"), [({"steps": 0}, ValueError), ({"every": 1.5}, TypeError)])
def test_arguments_of_the_wrong_kind_are_refused(arguments, raised):
    with pytest.raises(raised), audit.recording(**arguments):
        pass
    with pytest.raises(TypeError, match=r"a model is an nn\.Module"), audit.recording(3):
        pass
    with pytest.raises(TypeError, match="a run is a recording"):
        audit.compare(3, 4)


def test_one_at_a_time_and_an_exception_comes_out_and_is_kept():
    another = pytest.raises(RuntimeError, match=r"another audit\.recording")
    with another, audit.recording() as seen, audit.recording():
        pass
    assert seen.recording.ended.startswith("RuntimeError: another audit.recording is under way")


def test_empty_recordings_are_answered_in_a_sentence():
    how = How(of="", torch="", amp_lessons="", python="", device="", began="")
    comparison = audit.compare(Recording(how=how), Recording(how=replace(how, of="b")))
    assert "nothing was recorded" in comparison.obstacle
    assert not comparison.as_explained
    assert "cannot be compared" in str(comparison)
