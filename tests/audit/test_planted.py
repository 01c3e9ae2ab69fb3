"""Mistakes planted in a sound script, one edit each, are named with the line to mend; it gets no finding."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.audit.field.scripts import marked, run
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
    """What is replaced by what, and the line to mend, where none is marked in what is new."""

    old: str
    new: str
    line: str = ""


MODE = "    model.train()\n"
BACKWARD = "        scaler.scale(loss).backward()\n"
STEP = "            scaler.step(optimizer)\n"
CLEAR = "            optimizer.zero_grad()\n"
EPOCHS = "for epoch in range(2):\n"
LOSS = "            loss = weights[index] * F.cross_entropy(outputs.float(), targets) / 2\n"
WAITS = "            if scaler.get_scale() >= before:\n                schedule.step()\n"
UNSCALE, CLIP = "scaler.unscale_(optimizer)", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
AVERAGE = "kept.copy_(0.99 * kept + 0.01 * now.detach())"

# by the code of the finding
PLANTS = {
    "half_parameters": Plant("average =", "model.half()  # mend\naverage ="),
    "loss_in_half": Plant(BACKWARD, "        loss = loss.half()  # mend\n" + BACKWARD),
    "scaler_recreated": Plant(MODE, MODE + '    scaler = torch.amp.GradScaler("cpu")  # mend\n'),
    "overflow_hidden": Plant(
        BACKWARD,
        BACKWARD + "        for p in model.parameters():\n            p.grad.nan_to_num_(0, 0, 0)  # mend\n",
    ),
    "gradients_cleared": Plant(UNSCALE, f"optimizer.zero_grad()  # mend\n            {UNSCALE}"),
    "no_zero_grad, now and then": Plant(CLEAR, f"            if index % 4 == 3:\n    {CLEAR}", STEP.strip()),
    "no_zero_grad, ever": Plant(CLEAR, "", BACKWARD.strip()),
    "backward_in_autocast": Plant(
        BACKWARD, f"        with torch.autocast('cpu', torch.float16):\n    {BACKWARD}", BACKWARD.strip()
    ),
    "one_big_autocast": Plant(
        EPOCHS, f"wide.enter_context(torch.autocast('cpu', torch.float16))  # mend\n{EPOCHS}"
    ),
    "loss_outside_autocast": Plant(
        LOSS, "        loss = weights[index] * F.cross_entropy(outputs, targets) / 2  # mend\n"
    ),
    "clip_before_unscale": Plant(f"            {UNSCALE}\n", "", CLIP),
    "schedule_on_skipped_step": Plant(
        WAITS, "            schedule.step()  # mend\n            if scaler.get_scale() >= before:\n"
    ),
    "average_on_skipped_step": Plant(WAITS, f"{WAITS}            if True:\n", AVERAGE),
    "average_stuck": Plant("requires_grad_(False)", "requires_grad_(False).bfloat16()", AVERAGE),
    "scaler_not_saved": Plant(', "scaler": scaler.state_dict()', "", "torch.save(state, PATH)"),
    "window_added_up": Plant(LOSS, "            loss = F.cross_entropy(outputs.float(), targets)  # mend\n"),
    "evaluation_mode": Plant(EPOCHS + MODE, EPOCHS, "model.eval()"),
    "scale_begins_low": Plant('GradScaler("cpu")', 'GradScaler("cpu", init_scale=1.0)  # mend'),
    "no_update": Plant("            scaler.update()\n", "", UNSCALE),
    "step_bypasses_scaler": Plant(STEP, "            optimizer.step()  # mend\n"),
    "loss_not_scaled": Plant(BACKWARD, "        loss.backward()  # mend\n"),
    "unscaled_twice": Plant(
        STEP,
        f"            for p in model.parameters():\n                p.grad /= before  # mend\n{STEP}",
    ),
    "logs_scaled": Plant("total += loss.item()", "total += scaler.scale(loss).item()  # mend"),
    "masked_row_nan": Plant(
        LOSS, f"            outputs = torch.where(outputs > -50, outputs, -1e9)  # mend\n{LOSS}"
    ),
}


@pytest.fixture
def report_of(tmp_path):
    """Run a script, as a file of somebody's own, under a watch, and return the report."""
    with ExitStack() as wide:
        kept = {"PATH": tmp_path / "kept.pt", "wide": wide}
        yield lambda source: run(source, str(tmp_path / "train.py"), every=1, head="", **kept)


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
    if name == "masked_row_nan" and where == "cuda":
        pytest.skip("PyTorch itself refuses it on a GPU")
    plant = PLANTS[name]
    assert SCRIPT.count(plant.old) == 1
    planted = on(where, SCRIPT.replace(plant.old, plant.new))
    found = [(each.code, each.place.source) for each in report_of(planted).findings]
    (line,) = marked(planted) or [plant.line]
    assert (name.partition(",")[0], line) in found, found


@pytest.mark.parametrize("batches", [4, 12])
def test_steps_are_said_to_be_skipped_again_without_the_scalers_state_where_some_were(batches, report_of):
    short = SCRIPT.replace("range(12)", f"range({batches})")
    report = report_of(short.replace(PLANTS["scaler_not_saved"].old, ""))
    (found,) = (each for each in report.findings if each.code == "scaler_not_saved")
    skipped = sum(not step.happened for step in report.steps)
    assert ("skips steps until" in found.message) == bool(skipped) == (batches > 4)
