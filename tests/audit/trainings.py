"""Correct trainings of many kinds: a watch changes nothing of them, and finds nothing wrong with them.

Each trains for a few steps from a fixed seed, and returns whatever it has come to: weights, losses, state.
They train on PyTorch's default device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 6
TRAININGS: dict[str, Callable[[], Any]] = {}


def training(make: Callable[[], Any]) -> Callable[[], Any]:
    """Put a training into the list."""
    TRAININGS[make.__name__] = make
    return make


def place() -> str:
    """Return the kind of device that these train on."""
    return torch.get_default_device().type


def perceptron() -> nn.Sequential:
    """Make a small network with what changes under dropout, in place and in batches."""
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(16, 4)
    )


def trained(kind: Any = torch.optim.SGD, lr: float = 0.1, **options: Any) -> Any:
    """Make such a network and its optimizer."""
    model = perceptron()
    return model, kind(model.parameters(), lr=lr, **options)


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return the loss of a batch, under autocast where a ``dtype`` is given."""
    with torch.autocast(place(), dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        return F.cross_entropy(model(inputs), targets)


def batches(steps: int = STEPS) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw batches from PyTorch's own random numbers, which a watch must leave alone."""
    for _ in range(steps):
        yield torch.randn(6, 8), torch.randint(0, 4, (6,))


def outcome(*parts: Any) -> list[Any]:
    """Return copies of all state, and of the random numbers'."""
    states = [part.state_dict() if hasattr(part, "state_dict") else part for part in parts]
    return copy.deepcopy([*states, torch.get_rng_state()])


def apply(
    loss: Tensor,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
    clipped: nn.Module | None = None,
) -> None:
    """Step on the gradients of this loss alone: with a scaler, and then ``clipped``, where there is one."""
    optimizer.zero_grad()
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        if clipped is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(clipped.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype | None = None,
    scaler: torch.amp.GradScaler | None = None,
    poisoned: bool = False,
) -> list[float]:
    """Train as the course does: with a scaler, and under autocast in ``dtype``, where there is one."""
    losses = []
    for step, (inputs, targets) in enumerate(batches()):
        inputs = inputs * 1e6 if poisoned and step == 2 else inputs
        statistics = [buffer.clone() for buffer in model.buffers()]
        loss = loss_of(model, inputs, targets, dtype)
        apply(loss, optimizer, scaler, clipped=model)
        if not loss.isfinite():
            put_back(model, statistics)
        losses.append(loss.item())
    return losses


def put_back(model: nn.Module, statistics: list[Tensor]) -> None:
    """Give buffers the numbers that they had before a batch whose step was skipped."""
    for buffer, kept in zip(model.buffers(), statistics, strict=True):
        buffer.copy_(kept)


@training
def plain_fp32() -> Any:
    model, optimizer = trained(momentum=0.9, weight_decay=1e-3)
    return outcome(loop(model, optimizer), model, optimizer)


@training
def bf16() -> Any:
    model, optimizer = trained(torch.optim.AdamW, lr=1e-2)
    return outcome(loop(model, optimizer, torch.bfloat16), model, optimizer)


def _with_an_overflow(kind: Any, **options: Any) -> Any:
    (model, optimizer), scaler = trained(kind, lr=1e-2, **options), torch.amp.GradScaler(place())
    return outcome(loop(model, optimizer, torch.float16, scaler, poisoned=True), model, optimizer, scaler)


TRAININGS["fp16_with_an_overflow"] = partial(_with_an_overflow, torch.optim.Adam)
for _kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    for _option in ("foreach", "fused"):
        TRAININGS[f"{_kind.__name__.lower()}_{_option}"] = partial(
            _with_an_overflow, _kind, **{_option: True}
        )


@training
def accumulating() -> Any:
    (model, optimizer), scaler = trained(), torch.amp.GradScaler(place())
    for step, (inputs, targets) in enumerate(batches(8)):
        loss = loss_of(model, inputs, targets, torch.float16)
        scaler.scale(loss / 4).backward()
        if step % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return outcome(model, optimizer, scaler)


def _with_closure(make: Callable[[Any], torch.optim.Optimizer]) -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = make(model.parameters())
    losses = []
    for inputs, targets in batches():

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            optimizer.zero_grad()
            with torch.autocast(place(), dtype=torch.bfloat16):
                loss = F.cross_entropy(model(inputs).float(), targets)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure)))
    return outcome(losses, model, optimizer)


TRAININGS["lbfgs"] = partial(_with_closure, lambda weights: torch.optim.LBFGS(weights, lr=0.1, max_iter=4))
TRAININGS["adam_with_a_closure"] = partial(_with_closure, torch.optim.Adam)


@training
def two_networks() -> Any:
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3) for net in (generator, critic)]
    scaler = torch.amp.GradScaler(place())
    bce = F.binary_cross_entropy_with_logits
    for _ in range(STEPS):
        real, noise = torch.randn(6, 8), torch.randn(6, 4)
        optimizers[1].zero_grad()
        with torch.autocast(place(), dtype=torch.float16):
            fake = generator(noise)
            loss = bce(critic(real), torch.ones(6, 1)) + bce(critic(fake.detach()), torch.zeros(6, 1))
        scaler.scale(loss).backward()
        scaler.step(optimizers[1])
        optimizers[0].zero_grad()
        with torch.autocast(place(), dtype=torch.float16):
            loss = bce(critic(fake), torch.ones(6, 1))
        scaler.scale(loss).backward()
        scaler.step(optimizers[0])
        scaler.update()
    return outcome(generator, critic, *optimizers, scaler)


def _checkpointed(use_reentrant: bool) -> Any:
    first, last = perceptron(), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
    for inputs, targets in batches():
        inputs.requires_grad_()
        with torch.autocast(place(), dtype=torch.bfloat16):
            hidden = checkpoint(first, inputs, use_reentrant=use_reentrant)
            loss = F.cross_entropy(last(hidden), targets)
        apply(loss, optimizer)
    return outcome(first, last, optimizer)


TRAININGS["checkpointing"] = partial(_checkpointed, use_reentrant=False)
TRAININGS["reentrant_checkpointing"] = partial(_checkpointed, use_reentrant=True)


@training
def transformer_validated_on_its_fast_path() -> Any:
    model = nn.Sequential(
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), nn.Flatten()
    )
    optimizer = torch.optim.AdamW(model.parameters())
    outputs = []
    for _ in range(3):
        model.train()
        with torch.autocast(place(), dtype=torch.bfloat16):
            loss = model(torch.randn(2, 5, 8)).float().square().mean()
        apply(loss, optimizer)
        model.eval()
        with torch.no_grad():
            outputs.append(model(torch.randn(2, 5, 8)).sum().item())
    return outcome(outputs, model, optimizer)


@training
def validated_without_no_grad() -> Any:
    model, optimizer = trained()
    losses = []
    for inputs, targets in batches():
        losses.append(float(F.cross_entropy(model.train()(inputs), targets)))
        model.eval()
        losses.append(F.cross_entropy(model(inputs), targets).item())
        model.train()
        apply(F.cross_entropy(model(inputs), targets), optimizer)
    return outcome(losses, model, optimizer)


def _compiled(backend: str) -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch._dynamo.reset()
    losses = loop(torch.compile(model, backend=backend), optimizer, torch.bfloat16)
    return outcome(losses, model, optimizer)


TRAININGS["compiled_eager"] = partial(_compiled, "eager")
TRAININGS["compiled_aot_eager"] = partial(_compiled, "aot_eager")


@training
def tied_and_frozen() -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.frozen, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)
            self.head.weight = self.embedding.weight
            self.frozen.requires_grad_(False)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.head(self.frozen(self.embedding(tokens)).tanh())

    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        tokens = torch.randint(0, 9, (4, 5))
        with torch.autocast(place(), dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        apply(loss, optimizer)
    return outcome(model, optimizer)


@training
def sparse_gradients() -> Any:
    model = nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Flatten(), nn.Linear(12, 4))
    sparse = torch.optim.SparseAdam(model[0].parameters())
    dense = torch.optim.SGD(model[2].parameters(), lr=0.1)
    for _ in range(STEPS):
        loss = F.cross_entropy(model(torch.randint(0, 50, (4, 3))), torch.randint(0, 4, (4,)))
        model.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    return outcome(model, sparse, dense)


@training
def forked_workers() -> Any:
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(24, 8), torch.randint(0, 4, (24,)))
    model, optimizer = trained()
    for inputs, targets in DataLoader(data, batch_size=6, shuffle=True, num_workers=1):
        apply(F.cross_entropy(model(inputs), targets), optimizer)
    return outcome(model, optimizer)


@training
def penalty_on_gradients() -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(place())
    for inputs, targets in batches():
        loss = loss_of(model, inputs, targets, torch.float16)
        scaled = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
        norm = sum((gradient / scaler.get_scale()).square().sum() for gradient in scaled).sqrt()
        apply(loss + 0.1 * norm, optimizer, scaler)
    return outcome(model, optimizer, scaler)


@training
def averaged_and_scheduled() -> Any:
    (model, optimizer), scaler = trained(), torch.amp.GradScaler(place())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step, (inputs, targets) in enumerate(batches()):
        statistics = [buffer.clone() for buffer in model.buffers()]
        before = scaler.get_scale()
        apply(loss_of(model, inputs * (1e6 if step == 1 else 1.0), targets, torch.float16), optimizer, scaler)
        if scaler.get_scale() >= before:
            schedule.step()
            average.update_parameters(model)
        else:
            put_back(model, statistics)
    return outcome(model, average, optimizer, scaler)


class Masked(nn.Module):
    """A layer with buffers that hold inf on purpose: masks, made at once, in place or anew, and a minimum."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("causal", torch.full((6, 6), -torch.inf).triu(1))
        self.register_buffer("in_place", torch.zeros(6, 6), persistent=False)
        self.register_buffer("cached", torch.zeros(2, 2), persistent=False)
        self.register_buffer("smallest", torch.tensor(torch.inf))

    def forward(self, inputs: Tensor) -> Tensor:
        """Attend within (6, 8) rows."""
        self.in_place.masked_fill_(torch.ones(6, 6, dtype=torch.bool).triu(1), -torch.inf)
        self.cached = torch.full((len(inputs), len(inputs)), torch.inf).triu(1).neg()
        self.smallest = torch.minimum(self.smallest, inputs.min().detach())
        rows = self.layer(inputs)
        return (rows @ rows.mT + self.causal + self.in_place + self.cached.nan_to_num()).softmax(-1) @ rows


@training
def buffers_of_infinity() -> Any:
    model = Masked()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler(place())
    for step, (inputs, targets) in enumerate(batches()):
        if step == 3:
            model.smallest = torch.tensor(torch.inf)  # begun anew
        with torch.autocast(place(), dtype=torch.float16):
            loss = F.cross_entropy(model(inputs).float(), targets)
        apply(loss, optimizer, scaler)
    return outcome(model, optimizer, scaler)


@training
def attacked_in_evaluation_mode() -> Any:
    model, optimizer = trained()
    for inputs, targets in batches():
        model.eval()
        attacked = inputs.clone().requires_grad_()
        F.cross_entropy(model(attacked), targets).backward()
        model.train()
        apply(F.cross_entropy(model(inputs + 0.1 * attacked.grad.sign()), targets), optimizer)
    return outcome(model, optimizer)


@training
def evaluated_in_fp16() -> Any:
    model, optimizer = trained()
    correct = 0
    for inputs, targets in batches():
        apply(F.cross_entropy(model(inputs), targets), optimizer)
        with torch.no_grad(), torch.autocast(place(), dtype=torch.float16):
            correct += int((model(inputs).argmax(-1) == targets).sum())
    return outcome(correct, model, optimizer)
