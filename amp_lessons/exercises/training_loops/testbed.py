"""Where a learner's training loop runs: on a small classifier whose true gradients are known.

The optimizer is plain SGD, so the difference of the weights before and after a step, divided by the learning
rate, *is* the gradient that the loop used. Adam would hide every constant factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.exercises.attempt import outcome_of
from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.watching.spying_there import spying
from amp_lessons.exercises.watching.tape_there import Backward, Call, Event, Forward, Loss, Tape, device_type

_FEATURES, _HIDDEN, _CLASSES = 6, 16, 5
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Problem:
    """One run: which data, in which dtype, and what is done to make mistakes show.

    ``loss_weight`` multiplies the loss; at 2^-22 no unscaled gradient survives fp16, at 2^-5 gradients have a
    norm below 0.1. ``poisoned`` batches overflow in fp16: the forward pass of one, only the gradients of the
    other. ``one_backward`` allows the losses of a window to go through one backward pass together.
    """

    seed: int
    dtype: torch.dtype
    epochs: int = 2
    batch_sizes: tuple[int, ...] = (8, 8, 8, 8, 5)
    loss_weight: float = 2.0**-5
    poisoned: tuple[tuple[int, float], ...] = ()
    accumulation_steps: int = 1
    one_backward: bool = False
    max_norm: float | None = None

    @property
    def learning_rate(self) -> float:
        """The rate at which a step moves the weights by a few per cent, whatever the loss weight."""
        return 0.5 / self.loss_weight


class Loader:
    """Batches in a fixed order, every epoch the very same tensors, so that changing one of them shows."""

    drop_last = False

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches
        self.batch_size = len(batches[0][0])
        self.dataset = [(x, y) for inputs, targets in batches for x, y in zip(inputs, targets, strict=True)]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)


class Classifier(nn.Module):
    """Two linear layers that report every forward pass to a tape."""

    def __init__(self, tape: Tape | None = None) -> None:
        super().__init__()
        self.body = nn.Linear(_FEATURES, _HIDDEN)
        self.head = nn.Linear(_HIDDEN, _CLASSES)
        self.tape = tape

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, 6) to (batch, 5) logits."""
        hidden = self.body(inputs)
        # a forward pass during backward only recomputes what checkpointing did not keep
        if self.tape is not None and torch._C._current_graph_task_id() == -1:
            self.tape.add(lambda: self._observe(self.tape, inputs, hidden))
        return self.head(F.silu(hidden))

    def _observe(self, tape: Tape | None, inputs: Tensor, hidden: Tensor) -> Forward:
        assert tape is not None
        return Forward(
            part="model",
            inputs=inputs.detach().float().cpu().clone(),
            autocast_dtype=torch.get_autocast_dtype(tape.device_type) if tape.autocast_on() else None,
            parameter_dtype=self.body.weight.dtype,
            stale=is_stale(self.body, inputs, hidden),
            training=self.training,
            own_model=self.body.weight is tape.parameters[0],
            graph=torch.is_grad_enabled(),
            input_dtype=inputs.dtype,
        )


class WeightedCrossEntropy(nn.CrossEntropyLoss):
    """Cross entropy times a constant, reporting every call to a tape."""

    def __init__(self, loss_weight: float, tape: Tape | None = None) -> None:
        super().__init__()
        self.loss_weight = loss_weight
        self.tape = tape

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the weighted mean cross entropy of (batch, 5) logits."""
        loss = super().forward(input, target) * self.loss_weight
        if self.tape is not None:
            self.tape.watch_loss(loss)
        return loss


@dataclass(frozen=True)
class Step:
    """One training loss and all that followed until the next: the loop's handling of one batch.

    ``weights_after`` is a flat float32 tensor on the CPU, all parameters joined; ``batch`` is the index of
    the batch in the loader, None if the model was given something else.
    """

    loss: Loss
    forward: Forward | None
    backwards: tuple[Backward, ...]
    calls: tuple[Call, ...]
    weights_after: Tensor
    batch: int | None

    def called(self, *names: str, directly: bool = False) -> list[Call]:
        """List the calls of these names; ``directly`` leaves out what ``scaler.step`` did itself."""
        return [c for c in self.calls if c.name in names and not (directly and c.in_step)]

    @property
    def loss_is_finite(self) -> bool:
        """Whether the loss is neither inf nor NaN."""
        return math.isfinite(self.loss.value)

    @property
    def moved(self) -> bool:
        """Whether the weights changed."""
        return not torch.equal(self.loss.weights, self.weights_after)

    @property
    def backwards_into_grad(self) -> list[Backward]:
        """The backward passes that filled ``.grad``: ``torch.autograd.grad`` only looks (for a penalty)."""
        return [backward for backward in self.backwards if backward.gradients]

    @property
    def start_gradient(self) -> float | None:
        """The gradient that backward started with at the loss, None without a backward pass."""
        passes = self.backwards_into_grad or self.backwards
        return passes[-1].start_gradient if passes else None


@dataclass(frozen=True)
class Run:
    """A learner's loop on one problem: what it did, and what came of it.

    ``batches`` are copies, made before the run: inputs (batch, 6) and targets (batch,). ``start_weights``
    and ``end_weights`` are flat float32 tensors on the CPU, all parameters joined.
    """

    problem: Problem
    tape: Tape
    batches: list[Batch]
    steps: list[Step]
    start_weights: Tensor
    end_weights: Tensor
    outcome: Outcome
    inputs_changed: bool
    optimizer_id: int
    optimizer_changed: bool
    parameters: list[nn.Parameter]

    def calls(self, *names: str) -> list[Call]:
        """List all calls of these names, from first to last."""
        return [event for event in self.tape.events if isinstance(event, Call) and event.name in names]

    def truth(self, weights: Tensor, batch: int) -> tuple[float, Tensor]:
        """Compute the loss and its gradient on one batch in fp32; ``weights`` and gradient are flat."""
        return fp32_loss_and_gradient(weights, self.batches[batch], self.problem.loss_weight)


def make_batches(problem: Problem, device: str) -> list[Batch]:
    """Draw a problem's data: samples of very different sizes, with classes that depend on them."""
    generator = torch.Generator().manual_seed(problem.seed)
    directions = torch.randn(_FEATURES, _CLASSES, generator=generator)
    batches = []
    for index, size in enumerate(problem.batch_sizes):
        inputs = torch.randn(size, _FEATURES, generator=generator)
        targets = (inputs @ directions).argmax(dim=1)
        inputs = inputs * torch.rand(size, 1, generator=generator).mul(2.0).sub(1.0).exp()
        inputs = inputs * dict(problem.poisoned).get(index, 1.0)
        batches.append((inputs.to(device), targets.to(device)))
    return batches


def make_model(seed: int, device: str, tape: Tape | None = None) -> Classifier:
    """Make a classifier whose weights depend on ``seed`` only, not on device or global generator."""
    model = Classifier(tape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model.to(device)


def fp32_loss_and_gradient(weights: Tensor, batch: Batch, loss_weight: float) -> tuple[float, Tensor]:
    """Compute the loss at ``weights`` and its gradient, both flat float32 tensors on the CPU."""
    model = Classifier()
    nn.utils.vector_to_parameters(weights.clone(), model.parameters())
    inputs, targets = (tensor.detach().float().cpu() for tensor in batch)
    loss = F.cross_entropy(model(inputs), targets.long()) * loss_weight
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), torch.cat([g.reshape(-1) for g in gradients])


def run_loop(loop: Callable[..., Any], problem: Problem, fields: tuple[str, ...] = ()) -> Run:
    """Let ``loop`` train on ``problem`` while everything it does is written down.

    ``fields`` of the problem are passed to it as keyword arguments. Raises Rejected if the loop is still the
    stub, or does what no attempt may do.
    """
    device = device_type()
    model = make_model(problem.seed + 1000, device)
    tape = model.tape = Tape(list(model.parameters()), device)
    batches = make_batches(problem, device)
    originals = [(x.clone(), y.clone()) for x, y in batches]
    optimizer = torch.optim.SGD(model.parameters(), lr=problem.learning_rate)
    settings, start = _hyperparameters(optimizer), tape.weights()
    outcome = _train(loop, model, batches, optimizer, tape, problem, fields)
    end = tape.weights()
    return Run(
        problem=problem,
        tape=tape,
        batches=originals,
        steps=_steps(tape, end, originals, by_loss=problem.one_backward),
        start_weights=start,
        end_weights=end,
        outcome=outcome,
        inputs_changed=any(not _same(a, b) for a, b in zip(batches, originals, strict=True)),
        optimizer_id=id(optimizer),
        optimizer_changed=_hyperparameters(optimizer) != settings,
        parameters=list(model.parameters()),
    )


def _train(
    loop: Callable[..., Any],
    model: Classifier,
    batches: list[Batch],
    optimizer: torch.optim.Optimizer,
    tape: Tape,
    problem: Problem,
    fields: tuple[str, ...],
) -> Outcome:
    with spying(tape):
        return outcome_of(
            loop,
            model,
            Loader(batches),
            optimizer,
            WeightedCrossEntropy(problem.loss_weight, tape),
            problem.epochs,
            device_type=tape.device_type,
            dtype=problem.dtype,
            **{field: getattr(problem, field) for field in fields},
        )


def _hyperparameters(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]


def _same(a: Batch, b: Batch) -> bool:
    return all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y) for x, y in zip(a, b, strict=True)
    )


def _steps(tape: Tape, end: Tensor, batches: list[Batch], by_loss: bool) -> list[Step]:
    """Cut the tape at every training loss; ``by_loss`` puts a later backward pass to the loss it began at."""
    starts = [i for i, event in enumerate(tape.events) if isinstance(event, Loss)]
    steps: list[Step] = []
    for number, (start, stop) in enumerate(zip(starts, [*starts, len(tape.events)][1:], strict=True)):
        loss = tape.events[start]
        assert isinstance(loss, Loss)
        following = tape.events[start + 1 : stop]
        steps.append(
            Step(
                loss=loss,
                forward=_forward_of(tape.events[:start]),
                backwards=_backwards_of(number, tape.events) if by_loss else _backwards_in(following),
                calls=tuple(e for e in following if isinstance(e, Call)),
                weights_after=end,
                batch=None,
            )
        )
    weights_after = [*(step.loss.weights for step in steps), end][1:]
    return [
        replace(step, weights_after=after, batch=_which_batch(step.forward, batches))
        for step, after in zip(steps, weights_after, strict=True)
    ]


def _backwards_in(events: list[Event]) -> tuple[Backward, ...]:
    return tuple(event for event in events if isinstance(event, Backward))


def _backwards_of(loss: int, events: list[Event]) -> tuple[Backward, ...]:
    return tuple(backward for backward in _backwards_in(events) if backward.loss == loss)


def _forward_of(events: list[Event]) -> Forward | None:
    """Find the forward pass that led to a loss: the last one; validation, without a graph, does not count.

    Checkpointing makes its first forward pass without a graph, but then there is no other.
    """
    forwards = [event for event in events if isinstance(event, Forward)]
    return next((f for f in reversed(forwards) if f.graph), forwards[-1] if forwards else None)


def _which_batch(forward: Forward | None, batches: list[Batch]) -> int | None:
    """Recognise a batch by its values, also after a cast to half precision."""
    if forward is None:
        return None
    for index, (inputs, _) in enumerate(batches):
        if forward.inputs.shape == inputs.shape:
            known = inputs.detach().float().cpu()
            finite = forward.inputs.isfinite()  # a poisoned batch cast to fp16 by hand is not
            if torch.allclose(forward.inputs[finite], known[finite], rtol=1e-2, atol=1e-6) and finite.any():
                return index
    return None
