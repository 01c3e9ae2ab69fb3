"""A small character-level language model, and text that comes with every Python to train it on.

The text is ``pydoc_data.topics``, the prose behind ``help()``: about 460 000 characters, which differ a
little from one version of Python to the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@cache
def python_help_text() -> str:
    """Return the prose of Python's own help topics, in alphabetical order of the topics.

    Raises RuntimeError where an operating system ships Python without it.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise RuntimeError("this Python comes without pydoc_data.topics, the text of help()") from error
    return "\n".join(topics.topics[name] for name in sorted(topics.topics))


@dataclass(frozen=True)
class Vocabulary:
    """The characters of a text, each with its index."""

    characters: str

    @classmethod
    def of(cls, text: str) -> Vocabulary:
        """Collect the characters of ``text``."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Tensor:
        """Return the characters' indices, int64 of shape (length,). Raises ValueError for an unknown one."""
        index = {character: i for i, character in enumerate(self.characters)}
        unknown = sorted(set(text) - index.keys())
        if unknown:
            raise ValueError(f"these characters are not in the vocabulary: {unknown}")
        return torch.tensor([index[character] for character in text], dtype=torch.long)

    def decode(self, indices: Tensor) -> str:
        """Return the characters at these indices."""
        return "".join(self.characters[i] for i in indices.tolist())


class CharacterBatches:
    """Batches of (inputs, targets), int64 of shape (batch, context): the targets are the inputs one character
    later.

    Every epoch gives the same windows of the text, drawn once with ``seed``.
    """

    def __init__(
        self, codes: Tensor, *, context: int = 32, batch_size: int = 16, batches: int = 20, seed: int = 0
    ) -> None:
        if len(codes) <= context:
            raise ValueError(f"a text of {len(codes)} characters is too short for a context of {context}")
        draw = torch.Generator().manual_seed(seed)
        starts = torch.randint(len(codes) - context, (batches, batch_size, 1), generator=draw)
        self._windows = codes[starts + torch.arange(context + 1)]

    def __len__(self) -> int:
        return len(self._windows)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for window in self._windows:
            yield window[:, :-1], window[:, 1:]


class CharacterModel(nn.Module):
    """One transformer block: (batch, length) indices of characters to (batch, length, vocabulary) logits."""

    def __init__(self, vocabulary_size: int, *, context: int = 32, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.characters = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(context, width)
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, vocabulary_size)

    def forward(self, indices: Tensor) -> Tensor:
        """Predict the next character at every position. Raises ValueError beyond ``context`` characters."""
        length = indices.shape[1]
        if length > self.positions.num_embeddings:
            raise ValueError(
                f"{length} characters do not fit into a context of {self.positions.num_embeddings}"
            )
        hidden = self.characters(indices) + self.positions.weight[:length]
        hidden = hidden + self._attention(self.attention_norm(hidden))
        return self.head(hidden + self.mlp(self.mlp_norm(hidden)))

    def _attention(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        split = self.query_key_value(hidden).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))


def next_character_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy of (batch, length, vocabulary) logits, in nats per character."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
