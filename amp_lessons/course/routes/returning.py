"""What a kernel does for somebody who comes back to a lesson: nothing above was run in it yet.

The first thing run on a morning says where the learner stopped. A cell that needs what only an import above
it brings, or an exercise that was solved, gets it. For anything else that is not there one sentence says
where it comes from, in the place of a traceback.

Every kernel that ``amp-lessons lab`` starts loads this: what takes time is imported when it is needed.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import symtable
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

_LESSON = re.compile(r"(\d\d)_\w+")
_WIDTH = 90  # characters: JupyterLab breaks longer lines of an error inside a word
_RUN_ABOVE = "Click into this cell, then menu Run, Run All Above Selected Cell, then Shift+Enter."


def begin() -> None:
    """Begin in the kernel of a lesson; elsewhere, as in a Python of the terminal, do nothing."""
    lesson = _LESSON.match(Path(os.environ.get("JPY_SESSION_NAME", "")).name)
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None and lesson:
        Returning.here = returning = Returning(shell, lesson[1])
        shell.events.register("pre_run_cell", returning.before)
        shell.set_custom_exc((NameError,), returning.explain)


def runs_alone(source: str) -> bool:
    """Return whether a cell would have all it needs if it was the first that runs in a kernel like this."""
    brought = set(Returning.here.imported()) if Returning.here else set()
    try:
        return bool(source) and _needed(source) <= brought | vars(builtins).keys()
    except SyntaxError:  # a magic
        return False


class Returning:
    """A learner back in ``lesson``, by its number, in the kernel of ``shell``; ``here`` is this kernel's."""

    here: ClassVar[Returning | None] = None

    def __init__(self, shell: Any, lesson: str) -> None:
        """Nothing was said or run yet."""
        self._shell, self._lesson = shell, lesson
        self._said_on: date | None = None
        self._cell: str | None = None

    def before(self, info: Any) -> None:
        """Before a cell is run say where the learner stopped, once a day, and bring back what it needs."""
        if not info.store_history:  # no cell: a page asks for something
            return
        self._cell = info.cell_id
        with suppress(OSError, ValueError, SyntaxError):  # whatever it is, the cell says it better
            self._say_where_it_stopped()
            self._bring_back(self._shell.transform_cell(info.raw_cell))

    def explain(
        self,
        shell: Any,
        kind: type[BaseException],
        error: NameError,
        trace: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        """Show the error of a cell: where the name comes from, or the usual traceback."""
        with suppress(OSError, ValueError):
            if words := self._where_from(error, trace):
                error._render_traceback_ = lambda: words  # type: ignore[attr-defined]
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)

    def imported(self) -> Iterator[str]:
        """Yield the names that imports above the cell that runs bring: ``before`` brings them back."""
        for statement in self._imports():
            yield from map(_imported_as, statement.names)

    def _say_where_it_stopped(self) -> None:
        if self._said_on == date.today():
            return
        self._said_on = date.today()
        from amp_lessons.course.routes import following

        kept = self._kept()
        _show(self._shell, following.of_the_morning(kept, linked=True), following.of_the_morning(kept))

    def _bring_back(self, source: str) -> None:
        missing = _needed(source) - self._shell.user_ns.keys() - vars(builtins).keys()
        for statement in self._imports() if missing else ():
            names = {*map(_imported_as, statement.names)}
            if names & missing:
                missing -= names
                with suppress(ImportError):
                    self._run(ast.Module([statement], []), "<an import further up>")
        for name in sorted(missing):
            self._bring_back_solved(name, source)

    def _bring_back_solved(self, name: str, source: str) -> None:
        """Define what solved an exercise of this lesson, as the record keeps it."""
        from amp_lessons.course.lessons import tasks

        written = self._kept().written
        ids = [id for each in tasks.of_lesson(self._lesson) for id in each.exercises if id in written]
        found = {id: newest for id in ids if (newest := written[id].newest) and name in _made(newest.source)}
        version = next((each for id, each in found.items() if f'"{id}"' in source or len(found) == 1), None)
        if version is None:
            return
        self._run(_definitions(version.source), self._shell.compile.cache(version.source))
        said = f"`{name}` is yours that passed its check on {version.at[:10]}: "
        said += "its cell has not run since Python started."
        _show(self._shell, f"*{said}*", said)
        self._bring_back(version.source)

    def _where_from(self, error: NameError, trace: TracebackType) -> list[str]:
        """Return what to say of a name that a cell further up makes; nothing of any other."""
        while trace.tb_next:
            trace = trace.tb_next
        if trace.tb_frame.f_globals is not self._shell.user_ns or error.name in self._shell.user_ns:
            return []
        from amp_lessons.course.lessons.shipped import heading_of, source

        under, place = "at the lesson's beginning", ""
        for cell in self._above():
            if heading := heading_of(cell):
                under = f"under “{heading[1]}”"
            if cell["cell_type"] == "code" and error.name in _made(source(cell)):
                place = under
        said = (
            f"`{error.name}` is made in a cell further up, {place}, which has not run since Python started."
        )
        return textwrap.wrap(f"{said} {_RUN_ABOVE}", _WIDTH) if place else []

    def _imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        """Yield the imports in the cells above, the first at first."""
        from amp_lessons.course.lessons.shipped import code_of

        for cell in self._above():
            with suppress(SyntaxError):  # a magic
                imports = (ast.Import, ast.ImportFrom)
                yield from (each for each in ast.parse(code_of([cell])).body if isinstance(each, imports))

    def _above(self) -> list[Any]:
        """Return the lesson's cells above the one that runs, all where that one is the learner's own."""
        from amp_lessons.course.lessons import shipped

        cells = shipped.cells_in(self._lesson)
        here = [at for at, cell in enumerate(cells) if cell["id"] == self._cell]
        return list(cells[: here[0]] if here else cells)

    def _kept(self) -> Any:
        from amp_lessons.course import progress

        try:
            return progress.read()
        except progress.ProgressError:  # said where an answer is to be kept
            return progress.Learner()

    def _run(self, code: ast.Module, file: str) -> None:
        exec(compile(code, file, "exec"), self._shell.user_ns)


def _show(shell: Any, markdown: str, plain: str) -> None:
    """Put a line above what the cell that runs will show."""
    if plain:
        shell.display_pub.publish({"text/markdown": markdown, "text/plain": plain})


def _needed(source: str) -> set[str]:
    """Return the names that code takes from what was run before, in its functions too."""
    module = symtable.symtable(source, "a cell", "exec")
    tables, needed = [module], set[str]()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        needed |= {
            each.get_name() for each in table.get_symbols() if each.is_global() and each.is_referenced()
        }
    return needed - _made(source)


def _imported_as(each: ast.alias) -> str:
    return each.asname or each.name.partition(".")[0]


def _made(source: str) -> set[str]:
    """Return the names that code leaves when it was run; of what is no Python, none."""
    try:
        symbols = symtable.symtable(source, "a cell", "exec").get_symbols()
    except SyntaxError:
        return set()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}


def _definitions(source: str) -> ast.Module:
    """Return the imports, functions, classes and constants of a cell, without what computes something."""
    return ast.Module([*filter(_defines, ast.parse(source).body)], [])


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return not any(isinstance(each, ast.Call) for each in ast.walk(statement))
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)
