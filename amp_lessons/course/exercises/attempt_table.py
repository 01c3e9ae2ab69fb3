"""Attempts at one exercise: wrong ones with the finding each deserves, right ones that must pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amp_lessons.course.exercises import shelf


@dataclass
class Table:
    """Attempts at the exercise ``exercise_id``, by name.

    ``wrong`` maps a name to the first finding's code, a word of its message, and the attempt;
    ``right`` maps a name to the codes of the notes expected and the attempt.
    """

    exercise_id: str
    wrong: dict[str, tuple[str, str, Any]] = field(default_factory=dict)
    right: dict[str, tuple[tuple[str, ...], Any]] = field(default_factory=dict)

    def mutant(self, name: str, code: str, word: str, *changes: tuple[str, str]) -> None:
        """Add the course's solution with these pieces of its source replaced, as a wrong attempt."""
        self._add_wrong(name, code, word, self.changed(*changes))

    def variant(self, name: str, *changes: tuple[str, str], notes: tuple[str, ...] = ()) -> None:
        """Add the course's solution with these pieces of its source replaced, as a right attempt."""
        assert name not in self.right
        self.right[name] = (notes, self.changed(*changes))

    def mistake(self, code: str, word: str) -> Callable[[Any], Any]:
        """Add the decorated function or class as a wrong attempt."""

        def add(attempt: Any) -> Any:
            self._add_wrong(attempt.__name__, code, word, attempt)
            return attempt

        return add

    def correct(self, *notes: str) -> Callable[[Any], Any]:
        """Add the decorated function or class as a right attempt that gets these notes."""

        def add(attempt: Any) -> Any:
            assert attempt.__name__ not in self.right
            self.right[attempt.__name__] = (notes, attempt)
            return attempt

        return add

    def _add_wrong(self, name: str, code: str, word: str, attempt: Any) -> None:
        assert name not in self.wrong
        self.wrong[name] = (code, word, attempt)

    def changed(self, *changes: tuple[str, str]) -> Any:
        """Return what the solution's source defines once each piece is replaced where it occurs."""
        source = shelf.find(self.exercise_id).solution_source
        for old, new in changes:
            assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in the solution"
            source = source.replace(old, new)
        return self.defined(source)

    def defined(self, source: str) -> Any:
        """Run ``source`` as a notebook cell and return what the check takes."""
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(source, namespace)
        return shelf.find(self.exercise_id).defined_in(namespace)
