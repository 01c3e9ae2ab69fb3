"""Count what autograd keeps for the backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch

from amp_lessons.autocast.running.watch import unwatched


class SavedBytes:
    """The storages that autograd saved, each once; those of a model's parameters and buffers are not counted.

    ``measure.storages.StorageLog`` counts them too, in its own way, and tests hold the two beside each other:
    they are two witnesses on purpose. This one sees saved tensors alone, and costs a ledger almost nothing.

    Storages are held until the count is dropped: a freed one could lend its address to the next and hide it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        owned = chain(model.parameters(), model.buffers())
        self._owned = {tensor.untyped_storage()._cdata for tensor in owned}
        self._held: dict[int, tuple[torch.UntypedStorage, torch.dtype]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage behind a saved tensor, under the dtype of the first tensor saved from it."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._owned:
            self._held.setdefault(storage._cdata, (storage, tensor.dtype))

    @property
    def by_dtype(self) -> dict[torch.dtype, int]:
        """Bytes per dtype, most first."""
        counts: Counter[torch.dtype] = Counter()
        for storage, dtype in self._held.values():
            counts[dtype] += storage.nbytes()
        return dict(counts.most_common())


@contextmanager
def counting_saved(model: torch.nn.Module, backward_follows: bool) -> Iterator[SavedBytes]:
    """Count what autograd saves in this block; what is saved is kept only if a backward pass is to follow."""
    saved = SavedBytes(model)

    def pack(tensor: torch.Tensor) -> torch.Tensor | None:
        with unwatched():
            saved.add(tensor)
            return (
                tensor.detach() if backward_follows else None
            )  # a tensor itself would keep its own graph alive

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        yield saved
