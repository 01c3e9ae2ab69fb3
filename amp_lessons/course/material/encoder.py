"""A BERT encoder in plain PyTorch, its parameters named as in ``transformers``, so that such weights fit in.

Attention is written out, because the fused ``scaled_dot_product_attention`` hides its softmax. There is no
dropout: two runs from the same weights make the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from amp_lessons.course.material.models import seeded

EPS = 1e-12  # BERT's own; fp16 has no such number


class Embeddings(nn.Module):
    """What a token means, where it stands, in which of two texts: three embeddings, added and normalised."""

    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width, padding_idx=0)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=EPS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (n, length) to (n, length, width)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        added = self.word_embeddings(tokens) + self.position_embeddings(places)
        return self.LayerNorm(added + self.token_type_embeddings.weight[0])


class SelfAttention(nn.Module):
    """Each token takes the mean of all values, weighted by how well their keys fit to its query."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map (n, length, width), with a mask (n, length) that is true for text, to the same shape."""
        queries, keys, values = map(self.by_head, (self.query(hidden), self.key(hidden), self.value(hidden)))
        scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
        lowest = torch.finfo(scores.dtype).min  # not -inf: a row without any text stays finite
        weights = scores.masked_fill(~mask[:, None, None], lowest).softmax(-1)
        return (weights @ values).transpose(1, 2).flatten(-2)

    def by_head(self, x: Tensor) -> Tensor:
        """Map (n, length, width) to (n, heads, length, width / heads)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class AddAndNorm(nn.Module):
    """A linear layer, added to what went in before, and normalised."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_in, d_out)
        self.LayerNorm = nn.LayerNorm(d_out, eps=EPS)

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """Map (n, length, d_in) and (n, length, d_out) to (n, length, d_out)."""
        return self.LayerNorm(self.dense(x) + before)


class Attention(nn.Module):
    """Self-attention and what follows it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self = SelfAttention(width, heads)
        self.output = AddAndNorm(width, width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map (n, length, width) to the same shape."""
        return self.output(self.self(hidden, mask), hidden)


class Widening(nn.Module):
    """The first half of a layer's perceptron."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, inner)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (n, length, width) to (n, length, inner)."""
        return nn.functional.gelu(self.dense(hidden))


class EncoderLayer(nn.Module):
    """Attention and a perceptron."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.intermediate = Widening(width, inner)
        self.output = AddAndNorm(inner, width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map (n, length, width), with a mask (n, length) that is true for text, to the same shape."""
        hidden = self.attention(hidden, mask)
        return self.output(self.intermediate(hidden), hidden)


class Encoder(nn.Module):
    """MiniLM's size unless said otherwise; weights drawn as BERT draws them."""

    def __init__(
        self, vocabulary: int = 30522, width: int = 384, heads: int = 12, layers: int = 6, inner: int = 1536
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocabulary, 512, width)
        stack = nn.ModuleList(EncoderLayer(width, heads, inner) for _ in range(layers))
        self.encoder = nn.ModuleDict({"layer": stack})
        self.apply(_draw)

    @property
    def layers(self) -> nn.ModuleList:
        """The layers, from the bottom up."""
        return self.encoder["layer"]  # type: ignore[return-value]

    def forward(self, tokens: Tensor, mask: Tensor, layers: int | None = None) -> Tensor:
        """Map tokens (n, length) to (n, length, width), by the lowest ``layers`` alone if that is given."""
        hidden = self.embeddings(tokens)
        for layer in self.layers[:layers]:
            hidden = layer(hidden, mask)
        return hidden


class Classifier(nn.Module):
    """Some layers of an encoder, the mean over the tokens that are text, and a linear head."""

    def __init__(self, layers: Iterable[nn.Module], width: int, classes: int, *, seed: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = seeded(lambda: nn.Linear(width, classes), seed)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Map (n, length, width), with a mask (n, length) that is true for text, to (n, classes)."""
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.head(mean_of_text(hidden, mask))


def mean_of_text(hidden: Tensor, mask: Tensor) -> Tensor:
    """Average (n, length, width) over the tokens that are text: (n, width)."""
    text = mask[..., None].to(hidden.dtype)
    return (hidden * text).sum(1) / text.sum(1)


def _draw(module: nn.Module) -> None:
    """Draw weights as BERT does (https://arxiv.org/abs/1810.04805): normal, of standard deviation 0.02."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
