"""What a watch sees of a training whose weights are shards, on two real processes."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from amp_lessons import audit, parallel

pytestmark = pytest.mark.usefixtures("taken_along")


def trained(dtype, rate):
    """Train as FSDP2 does, with masters in ``dtype``; return what stood still, and what is found."""
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16).to(dtype)
    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    inputs = torch.randn(8, 16)
    with audit.watch(model, every=1) as seen:
        before = model.weight.to_local().clone()
        model(inputs).float().square().mean().backward()
        optimizer.step()
    still = (model.weight.to_local() == before).float().mean().item()
    return still, seen.steps[0].lost_updates, [finding.code for finding in seen.report.findings]


@pytest.mark.parametrize(("dtype", "loses"), [(torch.float32, False), (torch.bfloat16, True)])
def test_updates_that_16_bit_shards_lose_are_seen_on_each_rank(dtype, loses):
    for still, lost, found in parallel.run(trained, 2, dtype, 1e-4):
        assert ("masters_not_fp32" in found) is loses
        assert lost == pytest.approx(still, abs=0.1)  # the bias counts as well
        assert (lost > 0.5) is loses
