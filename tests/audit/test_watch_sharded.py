"""Trainings whose weights lie in shards, on one rank of gloo, and scalers of kinds that come late."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit
from tests.audit.plain_loops import as_script, mistakes
from tests.audit.trainings import apply

pytestmark = pytest.mark.filterwarnings("ignore")

STEPS, POISONED = 4, 2


def sharded_scaler() -> torch.amp.GradScaler:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    return ShardedGradScaler(device="cpu", init_scale=2.0**10)


def sharded_model() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    return model


def train(make_scaler: Any, unscale_first: bool = True) -> list[Tensor]:
    torch.manual_seed(0)
    model, scaler = sharded_model(), make_scaler()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = model(torch.randn(4, 8) * (1e6 if step == POISONED else 1.0))
            loss = F.cross_entropy(outputs, torch.zeros(4, dtype=torch.long))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if unscale_first:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    return [p.full_tensor().detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("make_scaler", [sharded_scaler, lambda: torch.amp.GradScaler("cpu")])
def test_fsdp2_with_either_scaler_is_the_same_under_a_watch_and_clean(one_rank, make_scaler):
    alone = train(make_scaler)
    with audit.watch(every=1) as seen:
        watched = train(make_scaler)
    assert all(torch.equal(one, other) for one, other in zip(alone, watched, strict=True))
    assert mistakes(seen.report) == set()
    assert all("distributed tensors" in each for each in seen.report.not_seen), "nothing else is hidden"
    assert [step.happened for step in seen.steps] == [step != POISONED for step in range(STEPS)]
    assert seen.layers["0"].parameters == 8 * 16 + 16
    assert seen.layers["0"].lost_update_fraction is not None


def test_large_weights_of_another_training_are_not_what_gathered_shards_move_towards(one_rank):
    """FSDP2 gathers into memory that it fills again; whatever else is in memory may be large."""
    shapes = [(16, 8), (16,), (4, 16), (4,)]
    old = torch.optim.SGD([nn.Parameter(1e8 * torch.randn(shape)) for shape in shapes], lr=0.1)
    with audit.watch(every=1) as seen:
        train(sharded_scaler)
    assert mistakes(seen.report) == set()
    assert old.param_groups


def test_a_mistake_with_shards_is_named(one_rank):
    with audit.watch(every=1) as seen:
        as_script(train)(sharded_scaler, unscale_first=False)
    assert "clip_before_unscale" in mistakes(seen.report)


def _loop(scaler: torch.amp.GradScaler) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(3, 4)).float().square().mean()
        apply(loss, optimizer, scaler)


def test_a_scaler_of_a_kind_that_is_defined_under_the_watch_is_heard():
    with audit.watch(every=1) as seen:

        class Own(torch.amp.GradScaler):
            def scale(self, outputs: Any) -> Any:
                return outputs * self.factor(outputs)

            def factor(self, outputs: Tensor) -> Tensor:
                if self._scale is None:
                    self._lazy_init_scale_growth_tracker(outputs.device)
                return self._scale

        own = vars(Own)["scale"]
        _loop(Own("cpu"))
        assert vars(Own)["scale"] is not own
    assert vars(Own)["scale"] is own
    assert mistakes(seen.report) == set()
    assert [step.scale for step in seen.steps] == [65536.0] * 3
