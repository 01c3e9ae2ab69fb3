"""Importance weights of tokens, held against fp64: small probabilities, caps, graphs, no numbers at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, described, function, require_unchanged
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCE = 1e-5  # relative: a difference and an exponential in fp32 are off by a tenth of it


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
    def differences(self) -> Tensor:
        """Trainer minus engine in fp64, 0 where one of them is no number."""
        return torch.where(self.usable, self.trainer.double() - self.engine.double(), 0.0)

    @property
    def weights(self) -> Tensor:
        """The weights asked for, in fp64."""
        return torch.where(self.usable, self.differences.exp().clamp(max=self.cap), 0.0)


def cases() -> Iterator[TokensCase]:
    """Yield tokens, from the usual ones to the last corner."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _drawn("ordinary tokens", 1, dtype)
        yield _drawn("tokens that the trainer finds far likelier", 2, dtype, shift=3.0)
        yield _drawn("tokens that the trainer finds far less likely", 3, dtype, shift=-3.0)
        yield _nearly_certain(dtype)
        yield _drawn("tokens of probabilities below 1e-60", 4, dtype, size=150.0)
    yield _drawn("ordinary tokens, a cap of 5", 5, torch.float32, shift=1.0, cap=5.0)
    yield _drawn("a single text", 6, torch.float32, shape=(40,))
    yield _with_no_numbers()


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


def _nearly_certain(dtype: torch.dtype) -> TokensCase:
    """Return log-probabilities whose differences have more digits than either of the two."""
    draw = torch.Generator().manual_seed(8)
    trainer, engine = -torch.rand(6, 30, generator=draw) * 0.02, -torch.rand(6, 30, generator=draw) - 1
    return TokensCase(
        "tokens of which the trainer is nearly certain", trainer.to(dtype), engine.to(dtype), 20.0
    )


def _with_no_numbers() -> TokensCase:
    case = _drawn("tokens without a probability", 7, torch.float32)
    case.engine[0, :10] = -torch.inf  # cut off by the engine's top-k
    case.trainer[1, :10] = -torch.inf
    case.trainer[2, :10], case.engine[2, :10] = -torch.inf, -torch.inf
    case.trainer[3, :10] = torch.nan
    case.engine[4, :10] = torch.nan
    return case


# --- the check


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the weights of several kinds of tokens; what is not as in fp64 is rejected by its cause."""
    importance_weights = function(worker, "importance_weights", torch.zeros(1), torch.zeros(1), 2.0)
    for case in cases():
        weights = _answer(importance_weights, case)
        require_none(_mistakes(weights, case))
    yield passed("ratio_per_token", "each weight is the ratio of the probabilities, however small they are")
    yield passed("ratio_capped", "no weight is above the cap, and below it none is changed")
    yield passed("ratio_is_constant", "no gradient flows through the weights, and what is no number counts 0")


def _answer(importance_weights: LearnersFunction, case: TokensCase) -> Tensor:
    trainer, engine = case.trainer.clone(), case.engine.clone()
    weights, has_graph = importance_weights.with_graph(trainer, engine, case.cap, about=case.what)
    given = case.engine, case.trainer
    require_unchanged((engine, trainer), given, "the log-probabilities", "compute with new tensors")
    if (
        not isinstance(weights, Tensor)
        or weights.dtype != torch.float32
        or weights.shape != case.trainer.shape
    ):
        raise Rejected(
            common_findings.wrong_return_type(
                f"an fp32 tensor of shape {tuple(case.trainer.shape)} was",
                f"{described(weights)}, {case.what}",
                "one weight for each token, from log-probabilities that .float() has made fp32",
            )
        )
    if has_graph:
        reject(
            "weights_have_graph",
            f"{case.what}, the weights have a graph: the gradient would also change the weights of tokens, "
            "and not only their probabilities",
            "detach the trainer's log-probabilities before anything is computed with them",
        )
    return weights.double()


def _mistakes(weights: Tensor, case: TokensCase) -> Iterator[Finding]:
    if _near(weights, case.weights):
        return
    what = case.what
    if not weights[~case.usable].eq(0).all():
        seen = float(weights[~case.usable][weights[~case.usable] != 0][0])
        yield failed(
            "not_masked",
            f"{what}, a token of which one log-probability is no number has the weight {seen:g}, where 0 was "
            "asked for: the engine never had that token, or something went wrong before",
            "torch.where(trainer.isfinite() & engine.isfinite(), weights, 0.0); NaN times a mask is NaN",
        )
    yield from _other_formulas(weights, case)
    if not weights.isfinite().all() or case.engine.max() < -100:
        yield failed(
            "ratio_of_probabilities",
            f"{what}, weights are {float(weights.flatten()[0]):g} where they should be "
            f"{float(case.weights.flatten()[0]):.3g}: in fp32 a probability below 1e-45 is 0, the ratio lost",
            "subtract the logarithms, and take the exponential of the difference",
        )
    off = float(((weights - case.weights).abs() / case.weights.clamp(min=1e-9)).max())
    if case.trainer.dtype != torch.float32 and off < 0.02:
        yield failed(
            "difference_in_half",
            f"{what}, weights are off by up to {off:.2%}: digits were lost to 16 bits",
            "make fp32 of both before the subtraction",
        )
    yield failed(
        "wrong_weights",
        f"{what}, weights are off by up to {off:.2g} of what they should be",
        "exp(trainer - engine) for each token by itself, no more than cap",
    )


def _near(weights: Tensor, wanted: Tensor) -> bool:
    return torch.allclose(weights, wanted, rtol=_TOLERANCE, atol=1e-12)


def _other_formulas(weights: Tensor, case: TokensCase) -> Iterator[Finding]:
    """Find out whether another formula explains the weights, where it says something else."""
    ratios, what = case.differences.exp(), case.what
    if _near(weights, torch.where(case.usable, ratios, 0.0)):
        yield failed(
            "ratio_not_capped",
            f"{what}, the largest weight is {float(weights.max()):.3g}, above the cap of {case.cap:g}: one "
            "token would count as much as many others together",
            "cap the weights, not their logarithms: clamp(max=cap) after exp",
        )
    inverted = (-case.differences).exp()
    if _near(weights, torch.where(case.usable, inverted.clamp(max=case.cap), 0.0)):
        yield failed(
            "ratio_inverted",
            f"{what}, the weights are engine over trainer: what the engine drew too often counts more still",
            "the probability that it has over the one with which it was drawn: exp(trainer - engine)",
        )
    if _near(weights.clamp(min=1 / case.cap), case.weights.clamp(min=1 / case.cap)):
        lowest = float(weights[case.usable].min())
        yield failed(
            "ratio_capped_below",
            f"{what}, no weight is below {lowest:.3g}: tokens that the trainer would hardly draw count as "
            "if it did",
            "cap from above alone: small weights have no large variance to be kept from",
        )
    if weights.any() and _near(weights / weights.mean(), case.weights / case.weights.mean()):
        yield failed(
            "weights_normalised",
            f"{what}, all weights are {float(weights.mean() / case.weights.mean()):.3g} times what they "
            "should be: their mean was divided out, or their sum",
            "return the weights as they are: how large they are on average is part of the correction",
        )
    if _near(weights, torch.where(case.usable, torch.where(ratios > case.cap, 0.0, ratios), 0.0)):
        yield failed(
            "capped_to_zero",
            f"{what}, tokens whose ratio is above the cap have the weight 0: that is masking, another method",
            "a ratio above the cap becomes the cap",
        )
