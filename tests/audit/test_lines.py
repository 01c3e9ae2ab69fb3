"""A finding names the line to mend: where a thing was made or called, and not where it came to light."""

from __future__ import annotations

import linecache
import textwrap
import warnings

import pytest

from amp_lessons import audit
from tests.audit.plain_loops import mistakes

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
data = [(torch.randn(6, 8) * (1e6 if i == 2 else 1), torch.randint(0, 4, (6,))) for i in range(8)]


class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cpu")

    def __call__(self, loss, optimizer):
        self._scaler.scale(loss).backward()
        self._scaler.step(optimizer)
        self._scaler.update()
"""

LOOP = """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

MASKED = """
visible = torch.ones(6, 6)
visible[:, 4:] = visible[0] = 0
hidden = 1 - visible
for _ in range(12):
    inputs, targets = data[0]
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        scores = model[0](inputs) @ model[0](inputs).T
"""

ATTENDED = """
        weights = scores.softmax(-1)
        outputs = weights @ model(inputs)
    loss = F.cross_entropy(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""

# by the code of the finding: the loop, with the line to mend marked; several have more than one spelling
WRONG = {
    "half_parameters": """
model = model.half()  # mend
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in data:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs.half()).float(), targets)
    loss.backward()
    optimizer.step()
""",
    "half_parameters, refused": """
model.half()  # mend
for inputs, targets in data:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs.half()).float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "half_parameters, made so": """
model = nn.Linear(8, 4, dtype=torch.float16)  # mend
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in data:
    optimizer.zero_grad()
    F.cross_entropy(model(inputs.half()).float(), targets).backward()
    optimizer.step()
""",
    "loss_in_half": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    loss = loss.half()  # mend
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "loss_not_scaled, refused": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "scaler_recreated": """
for epoch in range(2):
    scaler = torch.amp.GradScaler("cpu")  # mend
    for inputs, targets in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    "scaler_recreated, in a wrapper": """
for epoch in range(2):
    scale_and_step = NativeScaler()  # mend
    for inputs, targets in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        scale_and_step(loss, optimizer)
""",
    "overflow_hidden": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad = torch.nan_to_num(parameter.grad)  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "overflow_hidden, in place": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "gradients_cleared": """
for inputs, targets in data:
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.zero_grad()  # mend
    optimizer.step()
""",
    "gradients_cleared, refused": """
for inputs, targets in data:
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    optimizer.zero_grad()  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "no_zero_grad": """
for index, (inputs, targets) in enumerate(data):
    if index % 4 == 0:
        optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets) / 4
    loss.backward()
    optimizer.step()  # mend
""",
    "no_zero_grad, in a wrapper": """
scale_and_step = NativeScaler()
for index, (inputs, targets) in enumerate(data):
    if index % 4 == 0:
        optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets) / 4
    scale_and_step(loss, optimizer)  # mend
""",
    "backward_in_autocast": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()  # mend
    optimizer.step()
""",
    "one_big_autocast": """
with torch.autocast("cpu", torch.bfloat16):  # mend
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
""",
    "loss_outside_autocast": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(inputs)
    loss = F.cross_entropy(outputs, targets)  # mend
    loss.backward()
    optimizer.step()
""",
    "loss_outside_autocast, by a module": """
criterion = nn.CrossEntropyLoss()
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        outputs = model(inputs)
    loss = criterion(outputs, targets)  # mend
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "loss_outside_autocast, in a wrapper": """
scale_and_step = NativeScaler()
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        outputs = model(inputs)
    loss = (outputs - F.one_hot(targets, 4)).square().mean()  # mend
    scale_and_step(loss, optimizer)
""",
    "unscaled_twice": """
for inputs, targets in data[:2]:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    for parameter in model.parameters():
        parameter.grad /= scaler.get_scale()  # mend
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "unscaled_twice, by a factor, once the scaler has": """
for inputs, targets in data[:2]:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for parameter in model.parameters():
        parameter.grad.detach().mul_(1.0 / scaler.get_scale())  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "unscaled_twice, all at once": """
for inputs, targets in data[:2]:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    torch._foreach_div_([parameter.grad for parameter in model.parameters()], scaler.get_scale())  # mend
    scaler.step(optimizer)
    scaler.update()
""",
    "always_overflows, a product": MASKED
    + """
        scores = scores + hidden.to(scores.dtype) * -1e9  # mend
"""
    + ATTENDED,
    "always_overflows, a product on its own": MASKED
    + """
        bias = (1 - visible).half().mul(-1e9)  # mend
        scores = scores + bias
"""
    + ATTENDED,
    "always_overflows, a cast": MASKED
    + """
        bias = hidden * torch.finfo(torch.float32).min
        scores = scores + bias.to(scores.dtype)  # mend
"""
    + ATTENDED,
    "always_overflows, a choice": MASKED
    + """
        scores = torch.where(hidden > 0, -1e9, scores)  # mend
"""
    + ATTENDED,
    "always_overflows, rows of which nothing is open": MASKED
    + """
        scores = scores.masked_fill(hidden > 0, float("-inf"))
"""
    + ATTENDED.replace("scores.softmax(-1)", "scores.softmax(-1)  # mend"),
    "always_overflows, between layers": """
for _ in range(12):
    inputs, targets = data[0]
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        hidden = model[0](inputs) * 1e4
        energy = hidden.square().sum()  # mend
        loss = F.cross_entropy(model[2](hidden).float(), targets) + energy.float()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "always_overflows, in a layer": """
nn.init.constant_(model[2].weight, 1.0)
for _ in range(12):
    inputs, targets = data[0]
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        hidden = model[0](inputs).clamp(0.9, 1.0) * 6e4
        outputs = model[2](hidden)  # mend
    loss = F.cross_entropy(outputs.float(), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "always_overflows, in the backward pass": """
for _ in range(40):
    inputs, targets = data[0]
    optimizer.zero_grad()
    unused = torch.log(torch.zeros(3))
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs).float(), targets) * 1e38
    scaler.scale(loss * 1e-38 + (loss - loss.detach())).backward()
    scaler.step(optimizer)  # mend
    scaler.update()
""",
    "optimizer_step_direct": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    optimizer.step()  # mend
    scaler.update()
""",
}

RIGHT = {
    "the loop": LOOP,
    "a wrapper": """
scale_and_step = NativeScaler()
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scale_and_step(loss, optimizer)
""",
    "nan_to_num once the scaler has looked": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for parameter in model.parameters():
        parameter.grad.nan_to_num_(0.0, 0.0, 0.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "gradients made half as large, once the scaler has divided them": """
for inputs, targets in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = F.cross_entropy(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    for parameter in model.parameters():
        parameter.grad.div_(2.0)
    scaler.step(optimizer)
    scaler.update()
""",
    "the mean of a window, taken of its gradients": """
for index, (inputs, targets) in enumerate(data):
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    if index % 4 == 3:
        for parameter in model.parameters():
            parameter.grad /= 4
        optimizer.step()
        optimizer.zero_grad()
""",
    "a window of batches": """
for index, (inputs, targets) in enumerate(data):
    with torch.autocast("cpu", torch.bfloat16):
        loss = F.cross_entropy(model(inputs), targets) / 4
    loss.backward()
    if index % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
""",
    "the weights cast for evaluation only": LOOP
    + """
import copy
with torch.no_grad():
    copy.deepcopy(model).half()(data[0][0].half())
""",
}


def run(source: str, name: str) -> audit.Report:
    """Run a script whose lines are somebody's own; an exception ends it, as it may."""
    text = HEAD + source
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with audit.watch(every=1) as seen:
                exec(compile(text, name, "exec"), {"__name__": "__main__"})
        except (RuntimeError, ValueError, AssertionError):
            pass
    return seen.report


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Run scripts whose classes belong to a module of somebody's own, as those of a file do."""
    import sys
    import types

    main = types.ModuleType("__main__")
    main.__file__ = str(tmp_path / "train.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return lambda source: run(source, main.__file__)


@pytest.mark.parametrize("name", WRONG)
def test_the_line_to_mend_is_named(script, name):
    report = script(WRONG[name])
    code = name.partition(",")[0]
    found = [each for each in report.findings if each.code == code]
    assert [each.place.source for each in found] == [marked(WRONG[name])], report
    assert not [said for said in report.not_seen if "trouble" in said]


def marked(source: str) -> str:
    return next(line.strip() for line in textwrap.dedent(source).splitlines() if line.endswith("# mend"))


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_what_is_right(script, name):
    report = script(RIGHT[name])
    assert mistakes(report) == set()
    assert len(report.steps) > 1
    assert not report.not_seen
