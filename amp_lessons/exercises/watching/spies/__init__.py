"""Watch what a training loop really does: hooks, and the class-level patches, that write to a tape.

Methods are replaced on the classes, so that every spelling of ``GradScaler`` and ``autocast`` is seen,
subclasses and names imported earlier included. Where there is no GPU, "cuda" means the device there is:
PyTorch would otherwise switch autocast and the scaler off without an error, and every mistake would pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch

from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.exercises.watching.spies import on_autocast, on_device, on_optimizer, on_scaler
from amp_lessons.exercises.watching.tape import Tape


@contextmanager
def spying(tape: Tape) -> Iterator[Tape]:
    """Write everything that happens inside to ``tape``."""
    patches = (*on_scaler.PATCHES, *on_autocast.PATCHES, *on_optimizer.PATCHES, *on_device.patches(tape))
    with ExitStack() as stack:
        # compiled code would not come by the spies, and compiling takes longer than the whole check
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for owner, name, wrap in patches:
            stack.enter_context(replaced(owner, name, partial(wrap, tape)))
        stack.enter_context(on_optimizer.hooked(tape))
        yield tape
