"""Mistakes planted in a sound script, one edit each, are named with the line to mend; it gets no finding."""

from __future__ import annotations

import linecache
import sys
import types
import warnings
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from amp_lessons import audit
from tests.audit.where import WHERE

SCRIPT = """\
import copy
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
)
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
scaler = torch.amp.GradScaler("cpu")
data = [(torch.randn(8, 16), torch.randint(0, 4, (8,))) for _ in range(12)]
weights = [1.0] * 7 + [1e6] + [1.0] * 4  # one overflows
total = 0.0
for epoch in range(2):
    model.train()
    for index, (inputs, targets) in enumerate(data):
        with torch.autocast("cpu", torch.float16):
            outputs = model(inputs)
            loss = weights[index] * F.cross_entropy(outputs.float(), targets) / 2
        total += loss.item()
        scaler.scale(loss).backward()
        if index % 2 == 1:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() >= before:
                schedule.step()
                for kept, now in zip(average.parameters(), model.parameters()):
                    kept.copy_(0.99 * kept + 0.01 * now.detach())
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(data[0][0])
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    torch.save(state, PATH)
"""


class Plant(NamedTuple):
    """What is replaced by what, the code of the finding, and what stands in the line to mend."""

    old: str
    new: str
    code: str
    line: str


BACKWARD = "        scaler.scale(loss).backward()\n"
STEP = "            scaler.step(optimizer)\n"
AUTOCAST = '        with torch.autocast("cpu", torch.float16):\n'
LOSS = "            loss = weights[index] * F.cross_entropy(outputs.float(), targets) / 2\n"
WAITS = "            if scaler.get_scale() >= before:\n                schedule.step()\n"
CLIP = (
    "            scaler.unscale_(optimizer)\n            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
)

PLANTS = {
    "weights in fp16": Plant("average =", "model.half()\naverage =", "half_parameters", "model.half()"),
    "a loss in fp16": Plant(
        BACKWARD, "        loss = loss.half()\n" + BACKWARD, "loss_in_half", "loss = loss.half()"
    ),
    "a scaler for each epoch": Plant(
        "    model.train()\n",
        '    model.train()\n    scaler = torch.amp.GradScaler("cpu")\n',
        "scaler_recreated",
        'scaler = torch.amp.GradScaler("cpu")',
    ),
    "nan_to_num": Plant(
        BACKWARD,
        BACKWARD + "        for each in model.parameters():\n            each.grad.nan_to_num_(0, 0, 0)\n",
        "overflow_hidden",
        "each.grad.nan_to_num_(0, 0, 0)",
    ),
    "cleared before the step": Plant(
        CLIP, "            optimizer.zero_grad()\n" + CLIP, "gradients_cleared", "optimizer.zero_grad()"
    ),
    "a step for each micro-batch": Plant(
        "            optimizer.zero_grad()\n",
        "            if index % 4 == 3:\n                optimizer.zero_grad()\n",
        "no_zero_grad",
        "scaler.unscale_(optimizer)",
    ),
    "never cleared": Plant("            optimizer.zero_grad()\n", "", "no_zero_grad", BACKWARD.strip()),
    "backward inside autocast": Plant(
        BACKWARD,
        "        with torch.autocast('cpu', torch.float16):\n    " + BACKWARD,
        "backward_in_autocast",
        BACKWARD.strip(),
    ),
    "autocast over everything": Plant(
        "for epoch in range(2):\n",
        "wide.enter_context(torch.autocast('cpu', torch.float16))\nfor epoch in range(2):\n",
        "one_big_autocast",
        "wide.enter_context(torch.autocast('cpu', torch.float16))",
    ),
    "the loss outside autocast": Plant(
        LOSS,
        "        loss = weights[index] * F.cross_entropy(outputs, targets) / 2\n",
        "loss_outside_autocast",
        "loss = weights[index] * F.cross_entropy(outputs, targets) / 2",
    ),
    "clipped before unscaling": Plant(
        CLIP,
        "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "clip_before_unscale",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    ),
    "a schedule that does not wait": Plant(
        WAITS,
        "            schedule.step()\n            if scaler.get_scale() >= before:\n",
        "schedule_on_skipped_step",
        "schedule.step()",
    ),
    "an average that does not wait": Plant(
        WAITS,
        f"{WAITS}            if True:\n",
        "average_on_skipped_step",
        "kept.copy_(0.99 * kept + 0.01 * now.detach())",
    ),
    "an average in bf16": Plant(
        "requires_grad_(False)",
        "requires_grad_(False).bfloat16()",
        "average_stuck",
        "kept.copy_(0.99 * kept + 0.01 * now.detach())",
    ),
    "no scaler in the checkpoint": Plant(
        ', "scaler": scaler.state_dict()', "", "scaler_not_saved", "torch.save(state, PATH)"
    ),
    "a window that is not divided": Plant(
        LOSS,
        "            loss = F.cross_entropy(outputs.float(), targets)\n",
        "window_added_up",
        "loss = F.cross_entropy(outputs.float(), targets)",
    ),
    "left in evaluation mode": Plant(
        "for epoch in range(2):\n    model.train()\n",
        "for epoch in range(2):\n",
        "evaluation_mode",
        "model.eval()",
    ),
    "init_scale=1": Plant(
        'GradScaler("cpu")',
        'GradScaler("cpu", init_scale=1.0)',
        "scale_begins_low",
        'scaler = torch.amp.GradScaler("cpu", init_scale=1.0)',
    ),
    "no update": Plant("            scaler.update()\n", "", "no_update", "scaler.unscale_(optimizer)"),
    "past the scaler": Plant(
        STEP, "            optimizer.step()\n", "step_bypasses_scaler", "optimizer.step()"
    ),
    "a loss that is not scaled": Plant(
        BACKWARD, "        loss.backward()\n", "loss_not_scaled", "loss.backward()"
    ),
    "unscaled once more by hand": Plant(
        STEP,
        "            for each in model.parameters():\n                each.grad /= before\n" + STEP,
        "unscaled_twice",
        "each.grad /= before",
    ),
    "a scaled loss in the log": Plant(
        "total += loss.item()",
        "total += scaler.scale(loss).item()",
        "logs_scaled",
        "total += scaler.scale(loss).item()",
    ),
    "a mask that is no number in fp16": Plant(
        LOSS,
        "            outputs = torch.where(outputs > -50, outputs, -1e9)\n" + LOSS,
        "masked_row_nan",
        "outputs = torch.where(outputs > -50, outputs, -1e9)",
    ),
}


@pytest.fixture
def report_of(tmp_path, monkeypatch):
    """Run a script, as a file of somebody's own, under a watch, and return the report."""
    name = str(tmp_path / "train.py")
    main = types.ModuleType("__main__")
    main.__file__ = name
    monkeypatch.setitem(sys.modules, "__main__", main)

    def run(source: str) -> audit.Report:
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        with warnings.catch_warnings(), ExitStack() as wide:
            warnings.simplefilter("ignore")
            names = {"__name__": "__main__", "PATH": tmp_path / "kept.pt", "wide": wide}
            try:
                with audit.watch(every=1) as seen:
                    exec(compile(source, name, "exec"), names)
            except (RuntimeError, AssertionError, ValueError):
                pass
        return seen.report

    return run


def on(where: str, text: str) -> str:
    """Let a script name the device that it runs on."""
    kind = "cuda" if where == "cuda" else "cpu"
    return text.replace('"cpu"', f'"{kind}"').replace("'cpu'", f"'{kind}'")


@pytest.mark.parametrize("where", WHERE, indirect=True)
def test_the_script_itself_is_sound(where, report_of):
    report = report_of(on(where, SCRIPT))
    assert [each.code for each in report.findings] == []
    assert [step.index for step in report.steps if not step.happened] == [3, 9]
    assert not report.ended
    assert not report.not_seen


@pytest.mark.parametrize("where", WHERE, indirect=True)
@pytest.mark.parametrize("name", PLANTS)
def test_what_is_planted_is_named_with_the_line_to_mend(name, where, report_of):
    if name == "a mask that is no number in fp16" and where == "cuda":
        pytest.skip("PyTorch itself refuses it on a GPU")
    plant = PLANTS[name]
    assert SCRIPT.count(plant.old) == 1 or name == "init_scale=1", name
    report = report_of(on(where, SCRIPT.replace(plant.old, plant.new)))
    found = [(each.code, each.place.source) for each in report.findings]
    assert (plant.code, on(where, plant.line)) in found, found
    assert not [said for said in report.not_seen if "trouble" in said]


@pytest.mark.parametrize("batches", [4, 12])
def test_steps_are_said_to_be_skipped_again_without_the_scalers_state_where_some_were(batches, report_of):
    short = SCRIPT.replace("range(12)", f"range({batches})")
    report = report_of(short.replace(PLANTS["no scaler in the checkpoint"].old, ""))
    (found,) = (each for each in report.findings if each.code == "scaler_not_saved")
    skipped = sum(not step.happened for step in report.steps)
    assert ("skips steps until" in found.message) == bool(skipped) == (batches > 4)
