"""A loss that autocast leaves in 16 bits: what an audit says of it fits the format."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons import audit
from tests.audit.plain_loops import as_script


def train(dtype=torch.bfloat16, where="inside", backward_inside=False, loss_dtype=None) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, enabled=dtype == torch.float16)
    for _ in range(2):
        with torch.autocast("cpu", dtype=dtype):
            outputs = model(torch.randn(6, 4)).to(loss_dtype or dtype)
            if where != "inside":
                with torch.autocast("cpu", enabled=False):
                    loss = -torch.log_softmax(outputs, dim=-1).mean()
            if where != "island":
                loss = -torch.log_softmax(outputs, dim=-1).mean()
            if backward_inside:
                scaler.scale(loss).backward()
        assert loss.dtype == outputs.dtype  # on the CPU, log_softmax is none of autocast's fp32 operations
        if not backward_inside:
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def found(**how) -> list[audit.Sighting]:
    with audit.watch() as seen:
        as_script(train)(**how)
    return [each for each in seen.report.findings if each.code.startswith(("loss_in", "loss_outside"))]


@pytest.mark.parametrize(
    ("dtype", "name", "overflows"), [(torch.float16, "fp16", True), (torch.bfloat16, "bf16", False)]
)
def test_only_fp16_is_said_to_overflow_and_autocast_is_not_offered_as_the_cure(dtype, name, overflows):
    (finding,) = found(dtype=dtype)
    assert f"was computed in {name}" in finding.message
    assert ("65536 becomes inf" in finding.message) == overflows
    assert "outputs.float()" in finding.hint
    assert "autocast context" not in finding.hint
    assert found(dtype=dtype, loss_dtype=torch.float32) == []


@pytest.mark.parametrize("backward_inside", [False, True])
@pytest.mark.parametrize("where", ["island", "after an island", "inside"])
def test_a_loss_in_half_is_said_to_be_outside_autocast_where_autocast_was_off(where, backward_inside):
    (finding,) = found(where=where, backward_inside=backward_inside)
    assert finding.code == ("loss_outside_autocast" if where == "island" else "loss_in_half")
