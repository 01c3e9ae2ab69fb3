"""A small decoder with experts, in which each part can compute in a dtype of its own.

It is what lesson 11 takes apart: two blocks of causal attention and a mixture of experts, on characters. How
it computes is an argument, ``Arithmetic``, and no property of the weights: a trainer and an engine are the
same weights under two of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.material.models import seeded

PARTS = ("embedding", "residual", "norms", "linear", "attention", "router", "head", "loss")
EPS = 1e-6  # of the norms

Product = Callable[[Tensor, Tensor], Tensor]


def _as_it_is(cached: Tensor) -> Tensor:
    return cached


@dataclass(frozen=True)
class Arithmetic:
    """How a decoder computes: it does not change the weights.

    ``dtypes`` says in which dtype a part of ``PARTS`` takes its operands and gives its result; what it does
    not name computes in float32, and between two parts everything is float32. ``product`` multiplies the
    linear layers' inputs (rows, in) by their weights (out, in), transposed: another one stands for another
    kernel. ``cache`` is what becomes of keys and values, (batch, heads, length, width), between their making
    and their use. ``routes`` are the experts to take, as ``Decoder.chosen`` lists them, in place of the
    router's choice.
    """

    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    product: Product = F.linear
    cache: Callable[[Tensor], Tensor] = _as_it_is
    routes: Sequence[Tensor] | None = None

    def __post_init__(self) -> None:
        """Refuse a part that no decoder has. Raises ValueError that names those there are."""
        unknown = sorted(set(self.dtypes) - set(PARTS))
        if unknown:
            raise ValueError(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")

    def run(self, part: str, function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
        """Apply ``function`` to the operands in the dtype of ``part``, and return its result in float32."""
        dtype = self.dtypes.get(part, torch.float32)
        return function(*(operand.to(dtype) for operand in operands)).float()


FP32 = Arithmetic()


def all_in(dtype: torch.dtype, *, but: Sequence[str] = (), **further: object) -> Arithmetic:
    """Return an arithmetic with every part in ``dtype``, those named in ``but`` in float32."""
    return Arithmetic({part: dtype for part in PARTS if part not in but}, **further)  # type: ignore[arg-type]


def only(part: str, dtype: torch.dtype) -> Arithmetic:
    """Return an arithmetic with one part in ``dtype`` and the others in float32."""
    return Arithmetic({part: dtype})


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, and multiply by a weight for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor, how: Arithmetic) -> Tensor:
        """Map (..., width) to the same shape."""
        return how.run("norms", _normalised, hidden, self.weight)


def _normalised(hidden: Tensor, weight: Tensor) -> Tensor:
    return hidden * hidden.square().mean(-1, keepdim=True).add(EPS).rsqrt() * weight


class Attention(nn.Module):
    """Causal attention, its softmax written out; with ``qk_norm`` queries and keys are normalised first."""

    def __init__(self, width: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norms = nn.ModuleList(RMSNorm(width // heads) for _ in range(2)) if qk_norm else None
        self.largest_score = 0.0

    def forward(self, hidden: Tensor, how: Arithmetic) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        split = how.run("linear", how.product, hidden, self.query_key_value.weight)
        query, key, value = split.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.norms is not None:
            query, key = (norm(each, how) for norm, each in zip(self.norms, (query, key), strict=True))
        mixed = how.run("attention", self._attend, query, how.cache(key), how.cache(value))
        return how.run("linear", how.product, mixed.transpose(1, 2).flatten(-2), self.out.weight)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT * query.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
        self.largest_score = scores.detach().amax().item()
        return scores.softmax(-1) @ value


class Experts(nn.Module):
    """A router sends each token to one of several small networks (https://arxiv.org/abs/2101.03961)."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, width, 2 * width) * (2 * width) ** -0.5)

    def forward(self, hidden: Tensor, how: Arithmetic, route: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Map (tokens, width) to the same shape; return the experts taken, and how unevenly, too."""
        chances = how.run("router", self._chances, hidden, self.router.weight)
        chosen = chances.argmax(-1) if route is None else route
        output = torch.zeros_like(hidden)
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            rows = (chosen == number).nonzero()[:, 0]
            inside = F.silu(how.run("linear", how.product, hidden[rows], up))
            output = output.index_add(0, rows, how.run("linear", how.product, inside, down))
        taken = F.one_hot(chosen, len(self.up)).float().mean(0)
        imbalance = len(self.up) * (taken * chances.mean(0)).sum()
        return output * chances.gather(1, chosen[:, None]), chosen, imbalance

    @staticmethod
    def _chances(hidden: Tensor, weight: Tensor) -> Tensor:
        return F.linear(hidden, weight).softmax(-1)


class Block(nn.Module):
    """Attention and experts, each added to what went in."""

    def __init__(self, width: int, heads: int, experts: int, qk_norm: bool) -> None:
        super().__init__()
        self.attention_norm, self.experts_norm = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, qk_norm)
        self.experts = Experts(width, experts)

    def forward(self, hidden: Tensor, how: Arithmetic, route: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Map (batch, length, width) to the same shape; return the experts taken, and how unevenly, too."""
        attended = self.attention(self.attention_norm(hidden, how), how)
        hidden = how.run("residual", torch.add, hidden, attended)
        tokens = self.experts_norm(hidden, how).flatten(0, 1)
        mixed, chosen, imbalance = self.experts(tokens, how, route)
        return how.run("residual", torch.add, hidden, mixed.view_as(hidden)), chosen, imbalance


class Decoder(nn.Module):
    """Map characters (batch, length) to logits (batch, length, vocabulary).

    ``chosen`` holds the experts that the last pass took, for each block (tokens,) int64; ``imbalance`` how
    unevenly it used them: 1 where all are used alike, up to their number, as in Switch Transformers' loss.
    """

    def __init__(
        self,
        vocabulary_size: int,
        *,
        context: int = 64,
        width: int = 64,
        blocks: int = 2,
        heads: int = 4,
        experts: int = 4,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(vocabulary_size, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, experts, qk_norm) for _ in range(blocks))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary_size, bias=False)
        self.chosen: list[Tensor] = []
        self.imbalance = torch.zeros(())

    def forward(self, indices: Tensor, how: Arithmetic = FP32) -> Tensor:
        """Return the logits in float32. Raises ValueError beyond ``context`` characters."""
        length, context = indices.shape[1], self.positions.num_embeddings
        if length > context:
            raise ValueError(f"{length} characters do not fit into a context of {context}")
        weights = self.characters.weight, self.positions.weight[:length]
        hidden = how.run("embedding", lambda words, places: F.embedding(indices, words) + places, *weights)
        self.chosen, self.imbalance = [], torch.zeros(())
        for number, block in enumerate(self.blocks):
            route = None if how.routes is None else how.routes[number]
            hidden, chosen, imbalance = block(hidden, how, route)
            self.chosen.append(chosen)
            self.imbalance = self.imbalance + imbalance / len(self.blocks)
        return how.run("head", F.linear, self.norm(hidden, how), self.head.weight)

    @property
    def largest_score(self) -> float:
        """The largest attention score of the last pass, over all blocks."""
        return max(each.largest_score for each in self.modules() if isinstance(each, Attention))


def decoder(vocabulary_size: int, *, seed: int = 0, qk_norm: bool = False) -> Decoder:
    """Return an untrained decoder, the same for the same seed."""
    return seeded(lambda: Decoder(vocabulary_size, qk_norm=qk_norm), seed)


def log_probabilities(model: Decoder, inputs: Tensor, targets: Tensor, how: Arithmetic = FP32) -> Tensor:
    """Return the log-probability of each target, (batch, length), as ``model`` computes it under ``how``."""
    every = how.run("loss", lambda logits: logits.log_softmax(-1), model(inputs, how))
    return every.gather(-1, targets[..., None])[..., 0]


@torch.no_grad()
def perplexity(model: Decoder, inputs: Tensor, targets: Tensor, how: Arithmetic = FP32) -> float:
    """Return e to the mean loss: among how many characters the model is as unsure as if it had to guess."""
    return (-log_probabilities(model, inputs, targets, how).mean()).exp().item()


@dataclass(frozen=True)
class Changes:
    """What an arithmetic changes against fp32: log-probabilities, and choices of the router."""

    off: Tensor
    other_experts: int

    @property
    def typical(self) -> float:
        """The median change of a log-probability."""
        return self.off.median().item()

    @property
    def largest(self) -> float:
        """The largest change of a log-probability."""
        return self.off.max().item()


@torch.no_grad()
def changes(model: Decoder, inputs: Tensor, targets: Tensor, how: Arithmetic) -> Changes:
    """Return what ``how`` changes of the targets' log-probabilities, and how many other experts it takes."""
    exact = log_probabilities(model, inputs, targets)
    usual = model.chosen
    off = (log_probabilities(model, inputs, targets, how) - exact).abs()
    return Changes(off, sum(int((a != b).sum()) for a, b in zip(usual, model.chosen, strict=True)))


@torch.no_grad()
def with_block_weights(model: Decoder, change: Callable[[Tensor], Tensor]) -> Decoder:
    """Return a copy in which ``change`` made the weights of all linear layers and experts in the blocks anew.

    Embeddings, norms, routers and the head, which are usually left in 16 bits, stay as they are.
    """
    changed = copy.deepcopy(model)
    for name, weight in changed.blocks.named_parameters():
        if weight.dim() > 1 and "router" not in name:
            weight.copy_(change(weight))
    return changed


def split_product(parts: int, *, rounded: bool = True) -> Product:
    """Return a product that adds up ``parts`` pieces of the inner dimension separately, and then the pieces.

    So do kernels with split-K. Each piece is summed in float32 and, where ``rounded``, cast to the operands'
    dtype before the pieces are added up, which PyTorch lets cuBLAS do unless
    ``torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction`` is False. Raises ValueError for less
    than one part.
    """
    if parts < 1:
        raise ValueError(f"parts is at least 1, not {parts}")

    def multiply(x: Tensor, weight: Tensor) -> Tensor:
        pieces = zip(x.float().chunk(parts, -1), weight.float().chunk(parts, -1), strict=True)
        sums = [F.linear(*piece) for piece in pieces]
        kept = [each.to(x.dtype).float() for each in sums] if rounded else sums
        return torch.stack(kept).sum(0).to(x.dtype)

    return multiply


@torch.no_grad()
def continued(model: Decoder, prompts: Tensor, length: int, how: Arithmetic = FP32) -> Tensor:
    """Return prompts (batch, n) with ``length`` characters more, always the likeliest one: temperature 0.

    Raises ValueError where that goes beyond the model's context.
    """
    for _ in range(length):
        following = model(prompts, how)[:, -1].argmax(-1, keepdim=True)
        prompts = torch.cat([prompts, following], 1)
    return prompts
