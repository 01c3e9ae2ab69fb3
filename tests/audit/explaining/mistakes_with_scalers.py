"""Mistakes with the scaler, with optimizers and with the backward pass."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from amp_lessons.parallel.traffic import fake_group
from tests.audit.explaining.provoking import HALF, Mistake, Training, X, given


def _good() -> Training:
    return Training().backward().unscale().step().update()


def _step_replaced(late: bool) -> None:
    """Put another ``step`` into an optimizer, as wrappers do, before a schedule is made or after."""
    training = Training().backward()
    optimizer = training.optimizer
    early = torch.optim.lr_scheduler.StepLR(optimizer, 1) if late else None
    optimizer.step = type(optimizer).step.__get__(optimizer)
    schedule = early or torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    schedule.step()


def _count_without_a_scale(by_hand: bool) -> None:
    scaler = torch.amp.GradScaler("cpu")
    if by_hand:
        scaler._growth_tracker = torch.zeros(())
    else:
        scaler.load_state_dict(_good().scaler.state_dict())
    scaler.scale(X)


def _schedule(asks_first: bool) -> None:
    training = Training()
    schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 1)
    before = training.backward(X * torch.inf).scaler.get_scale()
    training.step().update()
    if not asks_first or training.scaler.get_scale() >= before:
        schedule.step()


def _load_nothing(asks_first: bool) -> None:
    state = torch.amp.GradScaler("cpu", enabled=False).state_dict()
    if state or not asks_first:
        Training().scaler.load_state_dict(state)


def _copy_scaler(at_the_end: bool) -> None:
    training = Training().backward().unscale()
    copy.deepcopy((training.step().update() if at_the_end else training).scaler)


class _TakesTheScaler(torch.optim.SGD):
    _step_supports_amp_scaling = True

    def step(self, closure=None, *, grad_scaler=None):
        return None


class _ReadsTheScale(torch.optim.SGD):
    _step_supports_amp_scaling = True

    def step(self, closure=None):
        assert self.found_inf == 0
        assert self.grad_scale == 1024


def _with_optimizer(kind: type[torch.optim.Optimizer]) -> None:
    training = Training()
    training.optimizer = kind(training.model.parameters(), lr=0.1)
    training.backward().step()


def _fused(stays: bool) -> None:
    training = Training()
    training.optimizer = torch.optim.AdamW(training.model.parameters(), fused=True)
    training.optimizer.param_groups[0]["fused"] = stays
    training.backward().step()


def _adam_then_half(first: bool) -> None:
    model = nn.Linear(4, 4)
    if first:
        model.bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(X.to(model.weight.dtype)).sum().backward()
        optimizer.step()
        model.bfloat16()


def _root_of_zero(offset: float) -> None:
    with torch.autograd.detect_anomaly(check_nan=True):
        weight = torch.zeros(1, requires_grad=True)
        ((weight + offset).sqrt() * 0).sum().backward()


def _clip(strictly: bool) -> None:
    training = Training().backward(X * torch.inf).unscale()
    nn.utils.clip_grad_norm_(training.model.parameters(), 1.0, error_if_nonfinite=strictly)
    training.step().update()


def _two_losses(at_once: bool) -> None:
    training = Training()
    hidden = training.model(X).exp()
    losses = hidden.sum(), hidden.mean()
    for loss in [sum(losses)] if at_once else losses:
        training.scaler.scale(loss).backward()


def _keep_casts(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
    casts = operation is torch.ops.aten._to_copy.default
    return CheckpointPolicy.MUST_SAVE if casts else CheckpointPolicy.PREFER_RECOMPUTE


def _selected(cached: bool) -> None:
    """Checkpoint the second use of a weight, and keep what was cast."""
    layer, x = nn.Linear(4, 4), X.clone().requires_grad_()
    keeping = partial(create_selective_checkpoint_contexts, _keep_casts)
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cached):
        layer(x)
        loss = checkpoint(layer, x, use_reentrant=False, context_fn=keeping).sum()
    loss.backward()


def _checkpointed(on_in_repetition: bool) -> None:
    runs = iter([True, on_in_repetition])
    layer = nn.Linear(4, 4)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=next(runs)):
            return layer(x).exp()

    checkpoint(forward, X.clone().requires_grad_(), use_reentrant=False).sum().backward()


def _assigned(dtype: torch.dtype) -> None:
    weight = nn.Parameter(X.clone())
    weight.grad = HALF.to(dtype)


def _average(dtype: torch.dtype) -> None:
    X.clone().lerp_(HALF.to(dtype), 0.1)


def _grouped(dtype: torch.dtype) -> None:
    torch.utils._foreach_utils._group_tensors_by_device_and_dtype([[X], [X.to(dtype)]])


def _on_blocks(then_on_the_model: bool, clips: bool) -> None:
    """Shard a block, and perhaps what is left; clip, or let a scaler look."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with fake_group(2) as mesh:
        for module in (model[0], *([model] if then_on_the_model else [])):
            fully_shard(module, mesh=mesh)
        training = Training(model).backward()
        if clips:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            training.unscale()


class _Tempered(nn.Module):
    """A layer whose outputs are multiplied by a learned scale, of a shape given."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def _tempered(shape: tuple[int, ...]) -> None:
    with fake_group(2) as mesh:
        Training(fully_shard(_Tempered(shape), mesh=mesh)).backward()


def _on_two_meshes(at_once: bool, takes_the_norm: bool = True) -> None:
    """Clip gradients that are sharded over two meshes, in one call or in one for each mesh."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with fake_group(4) as mesh:
        pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pair", "within"))["within"]
        for layer, its_mesh in zip(layers, (mesh, pairs), strict=True):
            fully_shard(layer, mesh=its_mesh)
        layers(X).sum().backward()
        groups = [list(layer.parameters()) for layer in layers]
        if at_once and takes_the_norm:
            nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        norms = [nn.utils.get_total_norm([p.grad for p in group]).full_tensor() for group in groups]
        for group in [[*groups[0], *groups[1]]] if at_once else groups:
            nn.utils.clip_grads_with_norm_(group, 1.0, nn.utils.get_total_norm(norms))


def _compiled_step(whole: bool) -> None:
    training = Training().backward()

    def step(x: torch.Tensor) -> torch.Tensor:
        if whole:
            training.scaler.step(training.optimizer)
        return training.model(x)

    torch.compile(step, backend="eager", fullgraph=True)(X)
    training.step().update()


def _updated(scale: torch.Tensor) -> None:
    """Let a scaler of somebody's own halve or double its scale, as Thinc's does."""
    torch._amp_update_scale_(scale, torch.zeros(1, dtype=torch.int32), torch.zeros(1), 2.0, 0.5, 2000)


MISTAKES = (
    Mistake("nothing_scaled", lambda: Training().directly().step(), _good),
    Mistake("nothing_scaled", lambda: Training().update(), _good),
    Mistake("unscaled_twice", lambda: Training().backward().unscale().unscale(), _good),
    Mistake("unscaled_after_step", lambda: Training().backward().step().unscale(), _good),
    Mistake("stepped_twice", lambda: Training().backward().step().step(), _good),
    Mistake("no_gradients_to_check", lambda: Training().backward().without_gradients().step(), _good),
    Mistake("update_without_check", lambda: Training().backward().directly().update(), _good),
    Mistake("closure", lambda: Training().backward().step(closure=lambda: 0), _good),
    Mistake(
        "scaler_off" if not torch.cuda.is_available() else "old_spelling",
        lambda: torch.cuda.amp.GradScaler(),
        lambda: torch.amp.GradScaler("cpu"),
    ),
    given("scaler_factors", lambda factor: torch.amp.GradScaler("cpu", backoff_factor=factor), 1.0, 0.99),
    given("fp16_gradients", lambda x: Training(nn.Linear(4, 4).to(x.dtype)).backward(x).unscale(), HALF, X),
    given("not_a_loss", lambda x: Training().scaler.scale(x), 0.5, X.sum()),
    given("new_scale", lambda x: Training().backward().step().update(x), torch.ones(2), 1024.0),
    given("empty_scaler_state", _load_nothing, False, True),
    given("scaler_pickled_in_mid_step", _copy_scaler, False, True),
    given("scaler_passed_to_optimizer", _with_optimizer, _TakesTheScaler, _ReadsTheScale),
    given("schedule_before_step", _schedule, False, True),
    given("fused_unscaling", _fused, False, True),
    given("fused_state_dtypes", _grouped, torch.float16, torch.float32),
    given("average_in_another_dtype", _average, torch.float16, torch.float32),
    given("average_in_another_dtype", _adam_then_half, False, True),
    given("gradient_of_another_dtype", _assigned, torch.float16, torch.float32),
    given("nan_in_backward", _root_of_zero, 0.0, 1e-6),
    given("norm_not_finite", _clip, True, False),
    Mistake("no_graph", lambda: X.sum().backward(), lambda: Training().backward()),
    given("backward_twice", _two_losses, False, True),
    given("cast_kept_by_a_checkpoint", _selected, True, False),
    given("checkpoint_recomputed_otherwise", _checkpointed, False, True),
    given("scaler_in_compiled_code", _compiled_step, True, False),
    given("scale_of_another_dtype", lambda x: _updated(torch.ones(1, dtype=x)), torch.float16, torch.float32),
    given("step_overridden", _step_replaced, True, False),
    given("scaler_half_initialised", _count_without_a_scale, True, False),
    given("plain_beside_sharded", partial(_on_blocks, clips=False), False, True),
    given("plain_beside_sharded", partial(_on_blocks, clips=True), False, True),
    given("scalar_in_shards", _tempered, (), (1,)),
    given("clipped_on_two_meshes", _on_two_meshes, True, False),
    given("clipped_on_two_meshes", partial(_on_two_meshes, takes_the_norm=False), True, False),
)
