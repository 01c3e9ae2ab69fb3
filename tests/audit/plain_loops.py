"""A plain problem on which the attempts at the loop exercises run as anybody's training would."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit

EPOCHS = 2
WEIGHT = 2.0**-5  # of the loss, so that gradients are small, as an exercise's are
TINY = 2.0**-22  # a weight at which none survives fp16 unscaled
OPTIONS: dict[str, dict[str, Any]] = {
    "train_with_amp": {},
    "clip_gradients": {"max_norm": 0.5},
    "accumulate_gradients": {"accumulation_steps": 2},
}


class Network(nn.Module):
    """Two linear layers, and dropout that leaves nearly everything."""

    def __init__(self, inputs: int = 6, outputs: int = 5) -> None:
        super().__init__()
        self.body = nn.Linear(inputs, 16)
        self.dropout = nn.Dropout(0.001)
        self.head = nn.Linear(16, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        return self.head(self.dropout(F.silu(self.body(inputs))))


class Loader(list[tuple[Tensor, Tensor]]):
    """A list of batches that knows what a DataLoader knows."""

    batch_size = 8
    drop_last = False

    @property
    def dataset(self) -> list[tuple[Tensor, Tensor]]:
        """One pair for each sample."""
        return [pair for inputs, targets in self for pair in zip(inputs, targets, strict=True)]


def batches(poisoned: bool = False) -> Loader:
    """Make five batches; of poisoned ones, two overflow in the forward pass, one in the gradients alone."""
    generator = torch.Generator().manual_seed(0)
    loader = Loader()
    for index, size in enumerate((8, 8, 8, 8, 5)):
        inputs = torch.randn(size, 6, generator=generator)
        too_large = {1: 8e3, 3: 1e6, 4: 1e6}.get(index, 1.0) if poisoned else 1.0
        loader.append((inputs * too_large, torch.randint(0, 5, (size,), generator=generator)))
    return loader


class Criterion(nn.Module):
    """The mean cross entropy, made small."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of (batch, 5) logits."""
        return F.cross_entropy(outputs, targets) * self.weight


@dataclass(frozen=True)
class Run:
    """One run of an attempt: in which dtype, on which data, with how small a loss."""

    dtype: torch.dtype
    poisoned: bool = False
    weight: float = WEIGHT


FP16, POISONED, BF16 = Run(torch.float16), Run(torch.float16, poisoned=True), Run(torch.bfloat16)
TINY_LOSS = Run(torch.float16, weight=TINY)


def watched(attempt: Callable[..., Any], exercise: str, run: Run, every: int = 3) -> audit.Report:
    """Run an attempt at an exercise under a watch, whatever becomes of it, and return the report."""
    start = _gan if exercise == "two_optimizers" else _classifier
    return watch_call(partial(start, as_script(attempt), exercise, run), every)


def watch_call(run: Callable[[], Any], every: int = 3) -> audit.Report:
    """Run something under a watch, whatever becomes of it, and return the report."""
    with warnings.catch_warnings(), _autocast_put_back():
        warnings.simplefilter("ignore")
        try:
            with audit.watch(every=every) as seen:
                run()
        except Exception:  # what it was, the report says
            return seen.report
    return seen.report


@contextmanager
def _autocast_put_back() -> Iterator[None]:
    """Undo what attempts leave switched on that an exception ends."""
    dtype = torch.get_autocast_dtype("cpu")
    try:
        yield
    finally:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_dtype("cpu", dtype)
        torch.autocast_increment_nesting()
        while torch.autocast_decrement_nesting():
            pass
        torch.clear_autocast_cache()


def _classifier(attempt: Any, exercise: str, run: Run) -> None:
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5 / run.weight)
    attempt(
        model, batches(run.poisoned), optimizer, Criterion(run.weight), EPOCHS,
        device_type="cpu", dtype=run.dtype, **OPTIONS[exercise],
    )  # fmt: skip


def _gan(attempt: Any, exercise: str, run: Run) -> None:
    torch.manual_seed(0)
    generator, discriminator = Network(4, 6), Network(6, 1)
    opt_g = torch.optim.SGD(generator.parameters(), lr=0.25)
    opt_d = torch.optim.SGD(discriminator.parameters(), lr=0.25)
    scaler = torch.amp.GradScaler("cpu", enabled=run.dtype == torch.float16)
    for step in range(4):
        too_large = 1e6 if run.poisoned and step == 2 else 1.0
        real, noise = torch.randn(10, 6) * too_large, torch.randn(10, 4)
        if run.poisoned and step == 1:
            noise = noise * 1e6
        networks = generator, discriminator, opt_g, opt_d
        attempt(*networks, scaler, real, noise, device_type="cpu", dtype=run.dtype)


# --- an attempt as a script: its lines are a person's own


def as_script(attempt: Any) -> Any:
    """Give the code of an attempt the name of a file of somebody's own, where it is a function."""
    if not isinstance(attempt, types.FunctionType):
        return attempt
    code = _renamed(attempt.__code__)
    alike = types.FunctionType(
        code, attempt.__globals__, attempt.__name__, attempt.__defaults__, attempt.__closure__
    )
    alike.__kwdefaults__ = attempt.__kwdefaults__
    return alike


def _renamed(code: types.CodeType) -> types.CodeType:
    constants = tuple(_renamed(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    return code.replace(co_filename="/home/somebody/train.py", co_consts=constants)


def mistakes(report: audit.Report) -> set[str]:
    """Return the codes of what is wrong; remarks are left out."""
    return {finding.code for finding in report.findings if not finding.ok}
