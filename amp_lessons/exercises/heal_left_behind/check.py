"""A moving average of weights in 16 bits: does it come as far as the same average in fp64?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, Rejected, reject
from amp_lessons.exercises.two_optimizers.tape_there import device_type
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.text.describing import describe

_TOLERANCE = (
    0.01  # of the way that the average goes: fp32 is ten times better, an average in 16 bits is worse
)
_FAR, _NEAR = (
    0.05,
    0.005,
)  # how far weights drift, as a fraction of them; the second is about one step of bf16


def check(attempt: Attempt) -> Iterator[Finding]:
    """Take the average of weights that drift, in several dtypes, and hold it against fp64's."""
    average = attempt.function(None, None, 1, 0.999)
    earlier: list[tuple[dict[str, Tensor], dict[str, Tensor]]] = []
    for seed, (dtype, decay, steps, drift) in enumerate(_CASES):
        training = _Training(dtype, steps, drift, seed)
        found = average(training.model, training.step, steps, decay, about=training.when)
        _require_steps(training)
        _require_model(training)
        _require_tensors(found, training)
        _require_average(found, training, decay)
        _require_own_memory(found, training)
        earlier.append((found, {name: value.clone() for name, value in found.items()}))
        _require_unchanged(earlier)
    yield passed("average", "the average comes as far as in fp64, of weights in bf16, in fp16 and in fp32")
    yield passed("step", "step() is called as often as asked for, and the model is left as training left it")


_CASES = (
    (torch.float32, 0.999, 600, _FAR),  # what is wrong here has nothing to do with 16 bits
    (torch.float32, 0.9, 20, _FAR),
    (torch.bfloat16, 0.999, 600, _FAR),
    (torch.float16, 0.9999, 600, _FAR),
    (torch.bfloat16, 0.99, 300, _NEAR),
    (torch.bfloat16, 0.0, 3, _FAR),
    (torch.float16, 0.99, 1, _FAR),
    (torch.float32, 0.99, 0, _FAR),
)


@dataclass
class _Training:
    """A model whose weights drift away from where they begin, a little with each call of ``step``."""

    dtype: torch.dtype
    steps: int
    drift: float
    seed: int
    history: list[dict[str, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = torch.Generator().manual_seed(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)).to(device_type(), self.dtype)
        self.model[0].bias.requires_grad_(False)  # a frozen parameter has an average too
        self.model.register_buffer("seen", torch.zeros((), device=device_type()))  # a buffer has none
        self.start = {name: each.detach().double() for name, each in self.model.named_parameters()}
        self.ends = {name: self._end(each) for name, each in self.start.items()}
        self._remember()

    @property
    def when(self) -> str:
        half = dtype_name(self.dtype)
        hardly = f" whose weights move by one or two numbers of {half}" if self.drift == _NEAR else ""
        return f"for {self.steps} steps of a model in {half}{hardly}"

    def step(self) -> None:
        share = len(self.history) / max(self.steps, 1)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                way = (self.ends[name] - self.start[name]) * share
                parameter.copy_(self.start[name] + way)
        self._remember()

    def average(self, decay: float) -> dict[str, Tensor]:
        """Return the average in fp64 of the weights that were really there."""
        return _averaged(self.history, decay)

    def _end(self, start: Tensor) -> Tensor:
        noise = torch.rand(start.shape, generator=self.draw, dtype=torch.float64).to(start.device)
        return start + self.drift * (start.abs() + 0.1) * (0.5 + noise)

    def _remember(self) -> None:
        weights = {name: each.detach().double() for name, each in self.model.named_parameters()}
        self.history.append(weights)


def _averaged(weights: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """Return the moving average in fp64 that begins with the first of these weights."""
    values = dict(weights[0])
    for each in weights[1:]:
        values = {name: decay * values[name] + (1 - decay) * each[name] for name in values}
    return values


def _require_steps(training: _Training) -> None:
    called = len(training.history) - 1
    if called != training.steps:
        reject(
            "steps_miscounted",
            f"step() was called {called} times instead of {training.steps}",
            "one call for each step, and one update of the average behind it",
        )


def _require_model(training: _Training) -> None:
    now = dict(training.model.named_parameters())
    same = (
        now[name].dtype == training.dtype and torch.equal(now[name].detach().double(), value)
        for name, value in training.history[-1].items()
    )
    if not all(same):
        reject(
            "inputs_changed",
            f"the model was changed by something else than step(), {training.when}: its weights, or their "
            "dtype",
            "the average needs memory of its own; .float() makes none of what is in fp32 already",
        )


def _require_tensors(found: Any, training: _Training) -> None:
    if not isinstance(found, dict) or set(found) != set(training.start):
        reject(
            "wrong_return_type",
            f"a dict with one tensor for each of {', '.join(training.start)} was expected, not "
            f"{describe(found)}{_other_names(found, training)}",
            "take the names from model.named_parameters()",
        )
    for name, value in found.items():
        if not isinstance(value, Tensor) or value.dtype != torch.float32 or value.requires_grad:
            graph = " with a graph" if isinstance(value, Tensor) and value.requires_grad else ""
            reject(
                "wrong_return_type",
                f"tensors in fp32 without a graph were expected; {name} is {describe(value)}{graph}",
                "keep the average in fp32, and update it under torch.no_grad()",
            )


def _other_names(found: Any, training: _Training) -> str:
    """Say which names are too few and too many, and what they stand for, where a dict was returned."""
    if not isinstance(found, dict):
        return ""
    missing = [name for name in training.start if name not in found]
    spare = [str(name) for name in found if name not in training.start]
    frozen = [name for name, each in training.model.named_parameters() if not each.requires_grad]
    buffers = [name for name, _ in training.model.named_buffers()]
    said = []
    if missing:
        said.append(f"without {', '.join(missing)}" + (", which is frozen" if missing == frozen else ""))
    if spare:
        said.append(f"with {', '.join(spare)}" + (", a buffer" if spare == buffers else ""))
    return ": " + ", and ".join(said)


def _require_average(found: dict[str, Tensor], training: _Training, decay: float) -> None:
    right, start, last = (
        _flat(each) for each in (training.average(decay), training.start, training.history[-1])
    )
    seen = _flat({name: found[name] for name in training.start})
    way = right - start
    error = float((seen - right).norm())
    if error <= _TOLERANCE * max(float(way.norm()), 1e-6 * float(start.norm())):
        return
    share = float((seen - start) @ way / (way @ way)) if way.any() else 1.0
    came = f"{training.when} with decay={decay} the average came {share:.0%} of its way"
    if training.dtype != torch.float32:
        _require_not_rounded(seen, right, start, came, training.dtype)
    if training.dtype == torch.float32 and training.steps:
        _require_no_other_average(seen, training, decay, came)
    _reject_average(seen, last, came)


def _require_no_other_average(seen: Tensor, training: _Training, decay: float, came: str) -> None:
    """Reject an average that begins with other weights, or takes them in at another time."""
    start, *later = training.history
    others = {
        "begins with the weights after the first step": later,
        "takes in the weights before each step, not those after it": [start, *training.history[:-1]],
        "begins with zeros": [{name: torch.zeros_like(each) for name, each in start.items()}, *later],
    }
    for what, weights in others.items():
        if torch.allclose(seen, _flat(_averaged(weights, decay)), rtol=1e-4, atol=1e-6):
            reject(
                "wrong_average",
                f"{came}: it is what comes out if it {what}",
                "begin with the weights from before the first step, and take in those after each step",
            )


def _require_not_rounded(seen: Tensor, right: Tensor, start: Tensor, came: str, dtype: torch.dtype) -> None:
    """Reject an average of numbers in 16 bits, by when they were rounded."""
    half, rounded = dtype_name(dtype), right.to(dtype).double()
    if not torch.equal(seen, seen.to(dtype).double()):
        return
    if (seen == rounded).double().mean() > _NEARLY_ALL:
        reject(
            "wrong_average",
            f"{came}, and is what the right one becomes when it is rounded to {half} in the end",
            "leave the result in fp32",
        )
    what = "the average, or decay, is" if torch.equal(seen, start) else "the average is"
    raise Rejected(
        catalogue.precision.average_stuck(
            f"{came}, and each of its numbers is one that {half} has", half, what
        )
    )


_NEARLY_ALL = 0.9  # what lies between two numbers of a dtype may go to either


def _reject_average(seen: Tensor, last: Tensor, came: str) -> NoReturn:
    if torch.equal(seen, last):
        reject(
            "last_weights",
            f"{came}: what was returned are the weights after the last step, not their average",
            "return the average",
        )
    reject(
        "wrong_average",
        f"{came}, and is off by more than a hundredth of it",
        "after each step, average = decay * average + (1 - decay) * weight, with every product in fp32; it "
        "begins with the weights from before the first step",
    )


def _require_own_memory(found: dict[str, Tensor], training: _Training) -> None:
    before = {name: value.clone() for name, value in found.items()}
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.add_(1)
    if not all(torch.equal(found[name], value) for name, value in before.items()):
        reject(
            "shares_memory",
            f"{training.when} the average changes when the model's weights do: it has no memory of its own",
            "clone what may already be in fp32",
        )


def _require_unchanged(earlier: list[tuple[dict[str, Tensor], dict[str, Tensor]]]) -> None:
    if not all(torch.equal(found[name], value) for found, copy in earlier for name, value in copy.items()):
        reject(
            "shares_memory",
            "the average that an earlier call had returned changed in a later one: both are in one memory",
            "make new tensors in each call, and nothing that outlives it: a default argument does",
        )


def _flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([each.detach().double().reshape(-1) for each in values.values()])
