"""A loss scale that backward is given as its gradient: it scales all gradients, and no scaler has to."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_lessons import audit
from tests.audit.plain_loops import as_script


def train(scale: float, *, as_list: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(6, 4)).float().square().mean()
        begin = torch.full_like(loss, scale)
        if as_list:
            torch.autograd.backward([loss], [begin])
        else:
            loss.backward(gradient=begin)
        for parameter in model.parameters():
            parameter.grad /= scale
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(("scale", "codes"), [(1.0, ["loss_not_scaled"]), (65536.0, [])])
def test_a_loss_is_scaled_where_its_backward_begins_with_the_scale(scale, codes, as_list):
    with audit.watch() as seen:
        as_script(train)(scale, as_list=as_list)
    assert [each.code for each in seen.report.findings if each.code.startswith("loss_not")] == codes
