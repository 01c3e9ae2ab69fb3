"""Run a script or a module as Python itself does, watched."""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType

from amp_lessons.commands.audit.late_audit import LateAudit
from amp_lessons.commands.audit.options import Options
from amp_lessons.commands.audit.outcome import INTERRUPTED
from amp_lessons.commands.audit.script import Program, module_program, script_program

_HERE = os.path.dirname(__file__)


def main() -> None:
    """Do what the options in ``sys.argv`` say; the arguments behind them are the script's."""
    options, arguments = Options.of_argument(sys.argv[1]), sys.argv[2:]
    audit = LateAudit(options)
    # Registered first, so called last: when the script's threads and its own exit handlers have ended.
    atexit.register(audit.end)
    audit.begin_with_torch()
    try:
        _program(options).run(arguments)
    except SystemExit:
        raise
    except BaseException as error:
        traceback = _without_ours(error.__traceback__)
        audit.end(error)
        error.__traceback__ = traceback
        sys.excepthook(type(error), error, traceback)
        sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _program(options: Options) -> Program:
    return module_program(options.module) if options.module else script_program(options.script or "")


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the frames above the script, which it would not have had without the audit."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_HERE):
        traceback = traceback.tb_next
    return traceback
