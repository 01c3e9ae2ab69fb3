"""The bytes that a language model reads for each token, and the speed that a GPU's memory allows it.

For one token a server multiplies every weight by one row, and reads the cache: keys and values of all earlier
tokens, or whatever else the model keeps of them. See Pope et al., https://arxiv.org/abs/2211.05102.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from amp_lessons._base.arguments import require, require_whole
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import memory, three_digits
from amp_lessons._base.whole_process import without_collecting
from amp_lessons.autocast.running import RealResults, fake_mode_of, on_fake_cpu
from amp_lessons.formats.integers import bits_per_weight
from amp_lessons.measure.batch import LARGEST_BATCH
from amp_lessons.measure.bounds import GPUS, DataSheet

USUAL_CONTEXT = 4096
_SHORT = 8, 16  # tokens: enough to see whether a cache grows with the text
_SIXTEEN = 16
_CACHES = "past_key_values", "cache_params"


class NoDecoderError(ValueError):
    """The model writes no text token by token with a cache; the message says what was looked for."""


@dataclass(frozen=True)
class Part:
    """Weights by which each token is multiplied: how many, by the length of their rows.

    ``in_blocks`` tells those that servers store in few bits from head, norms and biases, which stay in 16.
    ``share`` is the part of them that a single token uses, below 1 for routed experts.
    """

    numbers: Mapping[int, int]
    in_blocks: bool
    share: float = 1.0

    def nbytes(self, bits: int, group: int | None) -> float:
        """Return the bytes that they take, scales included, where blocks are stored in ``bits``."""
        few = self.in_blocks and bits < _SIXTEEN
        return sum(
            count * (bits_per_weight(row, bits, group) if few else _SIXTEEN) / 8
            for row, count in self.numbers.items()
        )

    def share_of(self, batch: int) -> float:
        """Return the part that ``batch`` tokens use together, each routed by itself and evenly."""
        return 1 - (1 - self.share) ** batch


@dataclass(frozen=True)
class Decoding:
    """The numbers that a language model reads for a token that it writes after ``context`` others.

    ``looked_up`` are the tables of which a token reads one row. ``cached`` is what is kept of one sequence,
    and ``cached_per_token`` what it grows by with a token, 0 for a state of fixed size. ``queries`` is how
    many queries read each key.
    """

    context: int
    parts: tuple[Part, ...]
    looked_up: int
    cached: int
    cached_per_token: int
    queries: float = 1.0

    def on(
        self, sheet: DataSheet, *, bits: int = _SIXTEEN, group: int | None = 32, cache_itemsize: int = 2
    ) -> Served:
        """Say what serving takes on a GPU: weights of blocks in ``bits`` by ``group``, the cache in bytes.

        ``bits`` are 2 to 8 with a scale for each ``group`` of a row (None: a row), or 16 without scales.
        Fewer bits are unpacked: products run in 16 bits all the same. Raises ``ValueError`` for other bits.
        """
        require(sheet, DataSheet, "sheet", 'a data sheet such as measure.GPUS["T4"]')
        if require_whole(bits, "bits", least=2) > 8 and bits != _SIXTEEN:
            raise ValueError(f"bits is a whole number from 2 to 8, or 16, not {bits}")
        require_whole(cache_itemsize, "cache_itemsize")
        return Served(self, sheet, bits, group, cache_itemsize)


@dataclass(frozen=True)
class Served:
    """A model on a GPU, stored in a certain way: what it takes, and the roofline's bound on its speed.

    Every weight is read once for all sequences of a batch, every cache for its own; products take as long as
    their bytes or their FLOP need, whichever is longer. Nothing else costs time: real servers are slower.
    """

    decoding: Decoding
    sheet: DataSheet
    bits: int
    group: int | None
    cache_itemsize: int

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights, tables that are looked up included."""
        read = sum(part.nbytes(self.bits, self.group) for part in self.decoding.parts)
        return round(read + self.decoding.looked_up * _SIXTEEN / 8)

    @property
    def cache_bytes(self) -> int:
        """The bytes of one sequence's cache."""
        return self.decoding.cached * self.cache_itemsize

    @property
    def largest_batch(self) -> int:
        """The number of sequences that fit beside the weights. Workspaces of kernels are not counted."""
        return max(0, int((self.sheet.usable_bytes - self.weight_bytes) // max(1, self.cache_bytes)))

    def read_bytes(self, batch: int) -> float:
        """Return what is read of weights for a token of each of ``batch`` sequences."""
        parts = self.decoding.parts
        return sum(part.nbytes(self.bits, self.group) * part.share_of(batch) for part in parts)

    def step_s(self, batch: int) -> float:
        """Return the least seconds for a token of each of ``batch`` sequences."""
        attention = 2 * self.decoding.queries * self.decoding.cached / self._flop_per_s
        with_caches = max(attention, self.cache_bytes / self.sheet.bytes_per_s)
        return max(self._reading_s(batch), self._multiplying_s(batch)) + batch * with_caches

    def tokens_per_s(self, batch: int = 1) -> float:
        """Return the most tokens per second of all sequences together."""
        return batch / self.step_s(require_whole(batch, "batch"))

    @property
    def compute_bound_from(self) -> int:
        """The smallest batch whose products with weights take longer to compute than to read the weights."""
        batches = range(1, LARGEST_BATCH)
        return 1 + bisect_left(batches, 0.0, key=lambda n: self._multiplying_s(n) - self._reading_s(n))

    @property
    def _flop_per_s(self) -> float:
        rates = self.sheet.flop_per_s
        return rates["bf16" if "bf16" in rates else "fp16"]

    def _reading_s(self, batch: int) -> float:
        return self.read_bytes(batch) / self.sheet.bytes_per_s

    def _multiplying_s(self, batch: int) -> float:
        used = sum(part.share * sum(part.numbers.values()) for part in self.decoding.parts)
        return 2 * batch * used / self._flop_per_s


# --- the answers as tables

# Bits of the weights in blocks, bytes of a number in the cache.
STORED = ((16, 2), (16, 1), (8, 2), (4, 2), (4, 1))


def stored_table(decoding: Decoding, sheet: DataSheet) -> Table:
    """Tabulate what ways of storing a model make of serving it on one GPU."""
    head = ("weights", "cache", "weights take", "cache a token", "a sequence", *_SPEEDS)
    rows = []
    for bits, itemsize in STORED:
        served = decoding.on(sheet, bits=bits, cache_itemsize=itemsize)
        per_token = memory(decoding.cached_per_token * itemsize) if decoding.cached_per_token else "none"
        weights = "16 bits" if bits == _SIXTEEN else f"INT{bits} by {served.group}"
        names = weights, "16 bits" if itemsize == 2 else "fp8"
        takes = memory(served.weight_bytes), per_token, memory(served.cache_bytes)
        rows.append((*names, *takes, *_speeds(served)))
    return Table(head, rows)


def gpus_table(decoding: Decoding) -> Table:
    """Tabulate what the GPUs of ``GPUS`` make of serving a model in 16 bits."""
    return Table(("GPU", *_SPEEDS), [(name, *_speeds(decoding.on(sheet))) for name, sheet in GPUS.items()])


def what_is_counted(decoding: Decoding) -> str:
    """Say in words what the tables rest on, and what they leave out."""
    tables = f", but for {memory(2 * decoding.looked_up)} of tables" if decoding.looked_up else ""
    of_experts = " Of the experts only those are read that some sequence is sent to, evenly."
    experts = of_experts if any(part.share < 1 for part in decoding.parts) else ""
    return (
        f"For a token after {decoding.context:,} others all weights are read, once for all "
        f"sequences{tables}, and each sequence's cache.{experts} At the data sheet's rates of memory and of "
        "16-bit products; real servers are slower, and need memory to work in besides. In many sequences "
        "arithmetic bounds the products with weights; caches are read all the same. Head, embedding and "
        "norms stay in 16 bits; an fp8 cache is counted without its scales."
    )


_SPEEDS = ("tokens/s of one", "that fit", "tokens/s of all", "arithmetic bounds from")


def _speeds(served: Served) -> tuple[str, ...]:
    """Return the cells under ``_SPEEDS``."""
    fit = served.largest_batch
    together = f"{served.tokens_per_s(fit):,.0f}" if fit else "—"
    alone = three_digits(served.tokens_per_s())
    return alone, f"{fit:,}" if fit else "none", together, f"{served.compute_bound_from:,}"


# --- what a model keeps, asked of the model itself


def decoding_of(model: nn.Module, context: int | None = None) -> Decoding:
    """Find out what ``model`` reads for a token after ``context`` others, by running it on fake tensors.

    It is a causal language model of ``transformers``, or one that is called as these are: with
    ``model(input_ids=..., use_cache=True)`` it returns ``past_key_values`` (or ``cache_params``). Without
    ``context`` it is 4,096 tokens, or as many as the model knows. Nothing is allocated, and the model is left
    as it was. Raises ``NoDecoderError`` for any other model, ``ValueError`` for a context that it cannot
    have.
    """
    fake, _ = on_fake_cpu(model, ())
    most = getattr(getattr(fake, "config", None), "max_position_embeddings", None)
    usual = min(USUAL_CONTEXT, most or USUAL_CONTEXT)
    context = usual if context is None else require_whole(context, "context")
    if most and context > most:
        raise ValueError(f"{type(model).__name__} knows {most:,} positions, so its context is at most that")
    _require_writer(fake)
    short, longer = _SHORT if most is None or most >= _SHORT[1] else (most // 2, most)
    with _as_a_server(fake):
        few, more = _numbers(_cache_of(fake, short)), _numbers(_cache_of(fake, longer))
        cached = _cache_of(fake, context if more > few else short)
    per_token = (more - few) // (longer - short)
    parts, looked_up = _weights(fake)
    return Decoding(context, parts, looked_up, _numbers(cached), per_token, _queries(fake, cached))


def writes_text(model: Any) -> bool:
    """Say whether this is a causal language model of ``transformers``; of other decoders nothing tells."""
    can = getattr(model, "can_generate", None)
    encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return callable(can) and bool(can()) and not encodes


def _require_writer(model: Any) -> None:
    """Refuse what writes no text, and what writes it from another text or picture."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise NoDecoderError(
            "it is an encoder with a decoder; what decoding takes is known of decoders alone"
        )
    if hasattr(model, "can_generate") and not writes_text(model):
        raise NoDecoderError(f"{type(model).__name__} writes no text token by token")


@contextmanager
def _as_a_server(model: nn.Module) -> Iterator[None]:
    """Run a fake model as a server does: without gradients, in evaluation mode, which is taken back."""
    training = [module for module in model.modules() if module.training]
    mode = fake_mode_of([*model.parameters(), *model.buffers()]) or FakeTensorMode()
    model.eval()
    try:
        with without_collecting(), torch.no_grad(), mode, RealResults():
            yield
    finally:
        for module in training:
            module.training = True


def _cache_of(model: nn.Module, tokens: int) -> list[torch.Tensor]:
    """Return what the model keeps of a sequence of ``tokens``."""
    try:
        output = model(input_ids=torch.zeros(1, tokens, dtype=torch.long), use_cache=True)
    except TypeError as error:
        raise NoDecoderError(f"it is not called as model(input_ids=..., use_cache=True): {error}") from error
    found = [each for name in _CACHES for each in _tensors_of(getattr(output, name, None), set())]
    if not found:
        raise NoDecoderError(f"with use_cache=True it returned no {' or '.join(_CACHES)}")
    return found


def _numbers(tensors: Iterable[torch.Tensor]) -> int:
    return sum(each.numel() for each in tensors)


def _tensors_of(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the floating tensors that a cache holds, whatever it is made of, each once."""
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None), nn.Module)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
        return
    values = value.values() if isinstance(value, Mapping) else value
    inside = values if isinstance(value, (Mapping, list, tuple)) else ()
    for each in (*inside, *getattr(value, "__dict__", {}).values()):
        yield from _tensors_of(each, seen)


def _queries(model: Any, cached: Iterable[torch.Tensor]) -> float:
    """Return how many query heads share a head of keys and values: (1, heads, tokens, width)."""
    heads = getattr(getattr(model, "config", None), "num_attention_heads", None) or 1
    shared = max((each.shape[1] for each in cached if each.dim() == 4), default=heads)
    return max(1.0, heads / shared)


def _weights(model: Any) -> tuple[tuple[Part, ...], int]:
    """Part the weights by what a server does with them; a shared one counts once."""
    head = getattr(getattr(model, "get_output_embeddings", lambda: None)(), "weight", None)
    tables = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    share = _share_of_experts(model)
    kinds: dict[str, Counter[int]] = {name: Counter() for name in ("matrices", "experts", "others", "tables")}
    for name, weight in model.named_parameters():
        if weight is head or weight.dim() < 2:
            kind = "others"
        elif id(weight) in tables:
            kind = "tables"
        else:
            kind = "experts" if share < 1 and "experts" in name.split(".") else "matrices"
        kinds[kind][weight.shape[-1] if weight.dim() else 1] += weight.numel()
    parts = (
        Part(dict(kinds["matrices"]), in_blocks=True),
        Part(dict(kinds["experts"]), in_blocks=True, share=share),
        Part(dict(kinds["others"]), in_blocks=False),
    )
    return tuple(part for part in parts if part.numbers), kinds["tables"].total()


def _share_of_experts(model: Any) -> float:
    """Return the part of its experts that a router of ``transformers`` takes for a token; 1 without one."""
    config = getattr(model, "config", None)
    names = "num_local_experts", "num_experts", "n_routed_experts"
    experts = next((found for name in names if (found := getattr(config, name, None))), None)
    chosen = getattr(config, "num_experts_per_tok", None)
    return chosen / experts if experts and chosen else 1.0
