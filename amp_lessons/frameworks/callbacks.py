"""``audit.watch`` where frameworks own the loop: callbacks for two trainers, a tracker for Accelerate.

A framework is imported when its callback is made.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Any

from torch import nn

from amp_lessons import audit


class Watching:
    """One training after another, each watched from ``begin`` to ``end``, as ``audit.watch`` is told to."""

    def __init__(self, every: int = 10, log: str | os.PathLike[str] | None = None) -> None:
        self._every, self._log = every, log
        self._stack = ExitStack()
        self._seen: audit.Seen | None = None

    @property
    def seen(self) -> audit.Seen:
        """The audit's report on the last training. Raises RuntimeError before there was one."""
        if self._seen is None:
            raise RuntimeError("no training has begun yet; hand it to the framework, and train")
        return self._seen

    @property
    def report(self) -> audit.Report:
        """The mistakes of the last training so far, and its numbers."""
        return self.seen.report

    def begin(self, *models: nn.Module) -> None:
        """Begin to watch, where nothing else does in this process; a watch that was left open ends."""
        self.end()
        self._seen = self._stack.enter_context(audit.watch(*models, every=self._every, log=self._log))

    def end(self, error: BaseException | None = None) -> None:
        """End the watch, and leave PyTorch as it was; a second call does nothing."""
        self._stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


def transformers_callback(every: int = 10, log: str | os.PathLike[str] | None = None) -> Any:
    """Return a callback for ``transformers.Trainer``, whose ``report`` is that of the last training.

    ``Trainer(…, callbacks=[callback])``; ``every`` and ``log`` are those of ``audit.watch``. Trainer tells no
    callback of an exception: where one ends the training, ``callback.end()`` ends the watch, or the next
    training does. Raises ImportError without transformers.
    """
    from transformers import TrainerCallback

    class AuditCallback(TrainerCallback, Watching):
        """Watch what happens between the first step and the last."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.begin(kwargs["model"])

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.end()

    return _made(AuditCallback, every, log)


def lightning_callback(every: int = 10, log: str | os.PathLike[str] | None = None) -> Any:
    """Return a callback for Lightning's ``Trainer``, whose ``report`` is that of the last training.

    ``Trainer(…, callbacks=[callback])``; ``every`` and ``log`` are those of ``audit.watch``. It belongs to
    the package that was imported, ``lightning`` or ``pytorch_lightning``. Raises ImportError without either.
    """

    class AuditCallback(_lightning().Callback, Watching):  # type: ignore[misc]
        """Watch what happens within ``fit``."""

        def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
            self.begin(pl_module)

        def on_fit_end(self, trainer: Any, pl_module: nn.Module) -> None:
            self.end()

        def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
            self.end(exception)

    return _made(AuditCallback, every, log)


def accelerate_tracker(every: int = 10, log: str | os.PathLike[str] | None = None) -> Any:
    """Return a tracker for Accelerate, whose ``report`` is that of the last training.

    ``Accelerator(log_with=tracker)`` watches the main process from ``accelerator.init_trackers("a name")`` to
    ``accelerator.end_training()``; ``every`` and ``log`` are those of ``audit.watch``. Where an exception
    comes between, ``tracker.end()`` ends the watch. Raises ImportError without Accelerate.
    """
    from accelerate.tracking import GeneralTracker

    class AuditTracker(GeneralTracker, Watching):
        """Watch what happens between the beginning of trackers and the end of training."""

        name = "amp-lessons audit"
        requires_logging_directory = False

        @property
        def tracker(self) -> audit.Seen | None:
            return self._seen

        def start(self) -> None:
            self.begin()

        def finish(self) -> None:
            self.end()

    return _made(AuditTracker, every, log)


def _made(kind: type[Any], every: int, log: str | os.PathLike[str] | None) -> Any:
    callback = kind()
    Watching.__init__(callback, every, log)
    return callback


def _lightning() -> Any:
    """Return Lightning, by the name under which it is in use."""
    if "lightning.pytorch" in sys.modules:
        return sys.modules["lightning.pytorch"]
    import pytorch_lightning

    return pytorch_lightning
