"""The process that runs a script and records it: ``python -m amp_lessons.cli.compare.child OPTIONS``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from amp_lessons.cli.audit.child import Late, run_beside, script_program
from amp_lessons.cli.compare import Options

if TYPE_CHECKING:
    from amp_lessons.audit.comparing.recorder import Run


class LateRecording(Late):
    """The recording of a process."""

    def __init__(self, options: Options, arguments: Sequence[str]) -> None:
        super().__init__(options.steps)
        self._options, self._arguments = options, tuple(arguments)
        self._run: Run | None = None

    def enter(self, stack: ExitStack) -> None:
        """Begin to record, in another precision or nudged if that was asked for."""
        from amp_lessons.audit.comparing.changes import Nudge, forced
        from amp_lessons.audit.comparing.recorder import recording
        from amp_lessons.audit.comparing.recording import Recording

        options = self._options
        nudge = Nudge.between(*map(Recording.load, options.between)) if options.between else None
        self._run = stack.enter_context(recording(steps=options.steps, every=options.every, nudged_by=nudge))
        if options.precision:
            stack.enter_context(forced(options.precision))
        self._run.listen(self.stepped)

    def keep(self) -> None:
        """Write what was recorded, with what was run."""
        assert self._run is not None
        recording = self._run.recording
        of, precision = self._options.script, self._options.precision
        how = replace(recording.how, of=of, precision=precision, arguments=self._arguments)
        replace(recording, how=how).save(self._options.kept)


def main() -> None:
    """Do what the options in ``sys.argv`` say; the arguments behind them are the script's."""
    options = Options(**json.loads(sys.argv[1]))
    run_beside(LateRecording(options, sys.argv[2:]), lambda: script_program(options.script), sys.argv[2:])


if __name__ == "__main__":
    main()
