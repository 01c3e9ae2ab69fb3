"""The process that runs the script: ``python -m amp_lessons.cli.audit.child OPTIONS [ARGUMENT…]``.

It runs a script or a module as Python itself does, and audits it from the moment at which it has imported
PyTorch. Nothing of PyTorch is imported before: the script may set variables that PyTorch reads then.
"""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from amp_lessons._base import files
from amp_lessons.cli.audit.parent import INTERRUPTED, Options

if TYPE_CHECKING:
    from amp_lessons.audit import Seen

_HERE = os.path.dirname(__file__)


def main() -> None:
    """Do what the options in ``sys.argv`` say; the arguments behind them are the script's."""
    options = Options(**json.loads(sys.argv[1]))
    read = module_program if options.module else script_program
    run_beside(LateAudit(options), lambda: read(options.module or options.script or ""), sys.argv[2:])


def run_beside(late: Late, program: Callable[[], Program], arguments: Sequence[str]) -> None:
    """Run a program while ``late`` watches it, and let it end as it would without."""
    # Registered first, so called last: when the script's threads and its own exit handlers have ended.
    atexit.register(late.end)
    when_imported("torch", late.begin)
    try:
        program().run(arguments)
    except SystemExit:
        raise
    except BaseException as error:
        traceback = _without_ours(error.__traceback__)
        late.end(error)
        error.__traceback__ = traceback
        sys.excepthook(type(error), error, traceback)
        sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the frames above the script, which it would not have had without the audit."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_HERE):
        traceback = traceback.tb_next
    return traceback


@dataclass(frozen=True)
class Program:
    """A program to run: its code, what ``sys.argv[0]`` says, and the attributes of its ``__main__``."""

    code: CodeType
    name: str
    attributes: dict[str, Any]

    def run(self, arguments: Sequence[str]) -> None:
        """Run it in a new ``__main__``, which stays: threads and exit handlers go on using it."""
        main = ModuleType("__main__")
        vars(main).update(self.attributes, __builtins__=builtins)
        sys.modules["__main__"] = main
        sys.argv[:] = [self.name, *arguments]
        exec(self.code, vars(main))


def script_program(path: str) -> Program:
    """Read a file. Raises OSError and SyntaxError as Python does."""
    file = os.path.abspath(path)
    _first_on_path(os.path.dirname(os.path.realpath(path)))
    with io.open_code(file) as opened:
        code = compile(opened.read(), file, "exec", dont_inherit=True)
    loader = SourceFileLoader("__main__", file)
    return Program(code, path, {"__file__": file, "__loader__": loader, "__cached__": None})


def module_program(name: str) -> Program:
    """Find a module, or a package's ``__main__``. Raises ImportError as Python does."""
    _first_on_path(os.getcwd())
    spec = _spec(name)
    if spec.submodule_search_locations is not None:
        spec = _spec(f"{name}.__main__")
    loader: Any = spec.loader
    attributes = {"__file__": spec.origin, "__loader__": loader, "__cached__": spec.cached}
    return Program(
        loader.get_code(spec.name),
        spec.origin or name,
        attributes | {"__spec__": spec, "__package__": spec.parent},
    )


def _spec(name: str) -> ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ModuleNotFoundError(f"No module named {name}", name=name)
    return spec


def _first_on_path(folder: str) -> None:
    """Put a folder where Python has put that of the audit's own process; ``python -P`` wants none there."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


_PAUSE = 20  # times as long as the last writing took: at most a twentieth of the time goes into it


class EnoughStepsError(SystemExit):
    """As many steps as were asked for: the script ends as by ``sys.exit(0)``, its ``finally`` included."""


class Late:
    """Watch the process that made it, once that has imported PyTorch; processes that fork from it go alone.

    Whoever derives from it says what is done on entering, to be undone by the ``stack``, and what is kept.
    """

    def __init__(self, steps: int | None) -> None:
        self._steps, self._process, self._exit = steps, os.getpid(), os._exit
        self._stack = ExitStack()
        self._watches = False

    def enter(self, stack: ExitStack) -> None:
        """Begin to watch."""
        raise NotImplementedError

    def keep(self) -> None:
        """Write what was seen so far."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin, in the process that is to be watched."""
        if self.is_ours():
            self.enter(self._stack)
            self._watches = True
            os._exit = self._exit_at_once

    def end(self, error: BaseException | None = None) -> None:
        """Stop watching, leave PyTorch as it was, and keep all that was seen; a second call does nothing."""
        if self.is_ours() and self._watches:
            self._watches = False
            os._exit = self._exit
            raised = (None, None, None) if error is None else (type(error), error, error.__traceback__)
            self._stack.__exit__(*raised)
            self.keep()

    def stepped(self, index: int) -> None:
        """End the script after as many steps as were asked for, in the process that is watched."""
        if self.is_ours() and self._steps is not None and index + 1 >= self._steps:
            raise EnoughStepsError(0)

    def is_ours(self) -> bool:
        """Whether this is the process that is watched."""
        return os.getpid() == self._process

    def _exit_at_once(self, status: int) -> Any:
        """Stand in for ``os._exit``, by which nothing else of Python's is called."""
        try:
            self.end()
        finally:
            self._exit(status)


class LateAudit(Late):
    """The audit of a process."""

    def __init__(self, options: Options) -> None:
        super().__init__(options.steps)
        self._options = options
        self._seen: Seen | None = None
        self._writing = threading.Lock()
        self._next_s = 0.0  # by the monotonic clock

    def enter(self, stack: ExitStack) -> None:
        """Begin to watch, with one thing changed in a trial."""
        from amp_lessons import audit

        if self._options.trial is not None:
            from amp_lessons.audit.trying import Trial
            from amp_lessons.audit.trying.carrying_out import carry_out

            carry_out(Trial(**self._options.trial))
        self._seen = stack.enter_context(audit.watch(every=self._options.every, log=self._options.log))
        self._seen.listen(self._listen)
        self.keep()  # whoever is killed before the first step had imported PyTorch

    def _listen(self, index: int, sampled: bool) -> None:
        if self.is_ours() and sampled and time.monotonic() >= self._next_s:
            self.keep()
        self.stepped(index)

    def keep(self) -> None:
        """Write what was seen so far, whole or not at all."""
        if self._seen is None or not self._writing.acquire(timeout=1):
            return
        try:
            start = time.monotonic()
            files.replace(Path(self._options.kept), self._seen.report.as_json())
            now = time.monotonic()
            self._next_s = now + _PAUSE * (now - start)
        finally:
            self._writing.release()


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Call ``then`` once the module ``name`` is complete; at once if it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder(MetaPathFinder):
    """Find the module by the other finders, and call ``then`` after its loader.

    It stays until the module has been executed: whoever only asks whether it could be found, as transformers
    does before it imports PyTorch, has not imported it.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.loader is not None:
            self._wait_for(spec.loader)
        return spec

    def _wait_for(self, loader: Any) -> None:
        """Replace the method of this one loader, until it has run."""
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            original(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then()

        loader.exec_module = exec_module


if __name__ == "__main__":
    from amp_lessons.cli.audit.child import main as main_of_this  # the script becomes ``__main__``

    main_of_this()
