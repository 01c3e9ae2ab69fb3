"""Watch anybody's training: nothing of it is changed, and its mistakes and its numbers are reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from amp_lessons.arguments import require, require_whole
from amp_lessons.audit.seen_so_far import Seen

_WATCHING = threading.Lock()


@contextmanager
def watch(*models: nn.Module, every: int = 10) -> Iterator[Seen]:
    """Watch the training inside: ``with audit.watch(model) as seen: train(…)``, then ``seen.report``.

    ``models`` give the names of layers; those that are left out are found by the optimizers that step their
    parameters, and so are optimizers and gradient scalers. Every ``every``-th step of each optimizer is
    looked at closely: its gradients, unscaled, by layer and format, the updates that were lost, the first
    inf or NaN. Between those steps nothing is computed and no device is waited for.

    The training's results are, bit for bit, those without the watch. Whatever ends it, PyTorch is left as it
    was, and what was seen until then can be read. Raises TypeError or ValueError for arguments of the wrong
    kind, and RuntimeError inside another ``watch``.
    """
    for model in models:
        require(model, nn.Module, "a model", "an nn.Module; optimizers and scalers are found by themselves")
    seen = Seen(models, require_whole(every, "every"))
    if not _WATCHING.acquire(blocking=False):
        raise RuntimeError("another audit.watch is under way in this process; end it first")
    try:
        with seen.watching():
            yield seen
    finally:
        _WATCHING.release()
