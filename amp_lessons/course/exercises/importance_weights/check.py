"""Importance weights of tokens, held against fp64: small probabilities, caps, graphs, no numbers at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed
from amp_lessons.formats.dtypes import dtype_name

_WITH_GRAPH = "amp_lessons.course.exercises.bed_there:call_with_graph"
_TOLERANCE = 1e-5  # relative: a difference and an exponential in fp32 are off by a tenth of it
_SMALLEST = 1e-7  # by which any weight may be off


@dataclass(frozen=True)
class TokensCase:
    """Log-probabilities of the same tokens by ``trainer`` and ``engine``, and the cap."""

    name: str
    trainer: Tensor
    engine: Tensor
    cap: float = 2.0

    @property
    def what(self) -> str:
        """Which tokens these are, and in which dtype, as a message names them."""
        return f"for {self.name} in {dtype_name(self.trainer.dtype)}"

    @property
    def usable(self) -> Tensor:
        """Where both log-probabilities are numbers."""
        return self.trainer.isfinite() & self.engine.isfinite()

    @property
    def weights(self) -> Tensor:
        """The weights asked for, in fp64, 0 where one log-probability is no number."""
        differences = torch.where(self.usable, self.trainer.double() - self.engine.double(), -torch.inf)
        return differences.exp().clamp(max=self.cap)


def cases() -> Iterator[TokensCase]:
    """Yield tokens, from the usual ones to the last corner."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _drawn("ordinary tokens", 1, dtype)
        yield _drawn("tokens that the trainer finds far likelier", 2, dtype, shift=3.0)
        yield _drawn("tokens that the trainer finds far less likely", 3, dtype, shift=-3.0)
        draw = torch.Generator().manual_seed(8)
        trainer, engine = -torch.rand(6, 30, generator=draw) * 0.02, -torch.rand(6, 30, generator=draw) - 1
        name = "tokens of which the trainer is nearly certain"  # differences have more digits than either
        yield TokensCase(name, trainer.to(dtype), engine.to(dtype), 20.0)
        yield _drawn("tokens of probabilities below 1e-60", 4, dtype, size=150.0)
    yield _drawn("tokens that the trainer finds all but impossible", 9, torch.float32, shift=-13.0)
    name = "tokens that the engine found all but impossible"  # their ratio is beyond fp32's range
    yield _drawn(name, 10, torch.float32, size=98.0, shift=95.0)
    yield _drawn("ordinary tokens, a cap of 5", 5, torch.float32, shift=1.0, cap=5.0)
    yield _drawn("a single text", 6, torch.float32, shape=(40,))
    case = _drawn("tokens without a probability", 7, torch.float32)
    case.engine[0, :10] = -torch.inf  # cut off by the engine's top-k
    case.trainer[1, :10] = -torch.inf
    case.trainer[2, :10], case.engine[2, :10] = -torch.inf, -torch.inf
    case.trainer[3, :10] = torch.nan
    case.engine[4, :10] = torch.nan
    yield case


def _drawn(
    name: str,
    seed: int,
    dtype: torch.dtype,
    *,
    shape: tuple[int, ...] = (6, 30),
    size: float = 3.0,
    shift: float = 0.0,
    cap: float = 2.0,
) -> TokensCase:
    draw = torch.Generator().manual_seed(seed)
    engine = -torch.rand(shape, generator=draw) * 2 - size
    trainer = engine + torch.randn(shape, generator=draw) * 0.5 + shift
    return TokensCase(name, trainer.to(dtype), engine.to(dtype), cap)


# --- the check


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the weights of several kinds of tokens; what is not as in fp64 is rejected by its cause."""
    importance_weights = bed.function(worker, "importance_weights", torch.zeros(1), torch.zeros(1), 2.0)
    for case in cases():
        weights = _answer(importance_weights, case)
        bed.require_none(_mistakes(weights, case))
    yield passed("ratio_per_token", "each weight is the ratio of the probabilities, however small they are")
    yield passed("ratio_capped", "no weight is above the cap, and below it none is changed")
    yield passed("ratio_is_constant", "no gradient flows through the weights, and what is no number counts 0")


def _answer(importance_weights: bed.LearnersFunction, case: TokensCase) -> Tensor:
    trainer, engine = case.trainer.clone(), case.engine.clone()
    given = trainer, engine, case.cap
    weights, has_graph = importance_weights.called_by(_WITH_GRAPH, *given, about=case.what)
    as_drawn = case.engine, case.trainer
    bed.require_unchanged((engine, trainer), as_drawn, "the log-probabilities", "compute with new tensors")
    hint = "one weight for each token, from log-probabilities that .float() has made fp32"
    weights = bed.require_tensor(weights, torch.float32, case.trainer.shape, case.what, hint)
    if has_graph:
        said = f"{case.what}, the weights have a graph: the gradient would also change them, "
        hint = "detach the trainer's log-probabilities before anything is computed with them"
        bed.reject("weights_have_graph", f"{said}and not only the probabilities of tokens", hint)
    return weights.double()


def _mistakes(weights: Tensor, case: TokensCase) -> Iterator[Finding]:
    wanted, usable, what = case.weights, case.usable, case.what
    if torch.allclose(weights, wanted, rtol=_TOLERANCE, atol=_SMALLEST):
        return
    if (masked := weights[~usable]).ne(0).any():
        said = f"{what}, a token of which one log-probability is no number has the weight "
        said += f"{float(masked[masked != 0][0]):g}, where 0 was asked for"
        hint = "torch.where(trainer.isfinite() & engine.isfinite(), weights, 0.0); NaN times a mask is NaN"
        yield failed("not_masked", said, hint)
    off = (
        ((weights - wanted).abs() / wanted.clamp(min=_SMALLEST / _TOLERANCE)).nan_to_num(torch.inf).flatten()
    )
    worst = int(off.argmax())
    trainer, engine, seen, right = (
        float(each.flatten()[worst]) for each in (case.trainer, case.engine, weights, wanted)
    )
    said = f"{what}, a token of log-probabilities {trainer:.4g} (trainer) and {engine:.4g} (engine) has the "
    said += f"weight {seen:.4g}, where {right:.4g} was asked for; the cap is {case.cap:g}"
    if not weights.isfinite().all() or case.engine.max() < -100:
        hint = "subtract the logarithms, and take the exponential of the difference"
        lost = ": in fp32 a probability below 1e-45 is 0, and the ratio is lost"
        yield failed("ratio_of_probabilities", f"{said}{lost}", hint)
    hint = "begin with .float() of both; exp(trainer - engine) for each token by itself, and what is above "
    hint += "cap becomes cap, and no more"
    yield failed("wrong_weights", said, hint)
