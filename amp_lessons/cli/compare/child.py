"""The process that runs a script and records it: ``python -m amp_lessons.cli.compare.child OPTIONS``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from amp_lessons.cli.audit.child import (
    EnoughStepsError,
    module_program,
    run_beside,
    script_program,
    when_imported,
)
from amp_lessons.cli.compare.options import Options

if TYPE_CHECKING:
    from amp_lessons.audit.comparing.recorder import Run


class LateRecording:
    """The recording of the process that made it; in processes that fork from it, nothing happens."""

    def __init__(self, options: Options, arguments: Sequence[str]) -> None:
        self._options, self._arguments = options, tuple(arguments)
        self._process = os.getpid()
        self._stack = ExitStack()
        self._run: Run | None = None
        self._exit = os._exit

    def begin_with_torch(self) -> None:
        """Begin once PyTorch has been imported."""
        when_imported("torch", self._begin)

    def end(self, error: BaseException | None = None) -> None:
        """Stop recording, leave PyTorch as it was, and keep what was recorded; a second call does nothing."""
        if not self._is_ours() or self._run is None:
            return
        run, self._run = self._run, None
        os._exit = self._exit
        self._stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        recording = run.recording
        named = replace(
            recording.how,
            of=self._options.script,
            precision=self._options.precision,
            arguments=self._arguments,
        )
        replace(recording, how=named).save(self._options.kept)

    def _begin(self) -> None:
        if not self._is_ours():
            return
        from amp_lessons.audit.comparing.forcing import forced
        from amp_lessons.audit.comparing.nudging import Nudge
        from amp_lessons.audit.comparing.recorder import recording
        from amp_lessons.audit.comparing.recording import Recording

        options = self._options
        nudge = Nudge.between(*map(Recording.load, options.between)) if options.between else None
        self._run = self._stack.enter_context(
            recording(steps=options.steps, every=options.every, nudged_by=nudge)
        )
        if options.precision:
            self._stack.enter_context(forced(options.precision))
        self._run.listen(self._stepped)
        os._exit = self._exit_at_once

    def _stepped(self, step: int) -> None:
        if self._is_ours() and step + 1 >= self._options.steps:
            raise EnoughStepsError(0)

    def _exit_at_once(self, status: int) -> Any:
        """Stand in for ``os._exit``, by which nothing else of Python's is called."""
        self.end()
        self._exit(status)

    def _is_ours(self) -> bool:
        return os.getpid() == self._process


def main() -> None:
    """Do what the options in ``sys.argv`` say; the arguments behind them are the script's."""
    options = Options.of_argument(sys.argv[1])
    program = module_program if options.is_module else script_program
    late = LateRecording(options, sys.argv[2:])
    run_beside(late, lambda: program(options.script), sys.argv[2:])


if __name__ == "__main__":
    main()
