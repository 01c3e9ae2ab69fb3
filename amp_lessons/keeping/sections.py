"""Sections of the progress file, each the business of one module, also where one holds what it should not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from amp_lessons import files
from amp_lessons.keeping import progress

T = TypeVar("T")


class DamagedError(Exception):
    """A section holds something else than it should."""


@dataclass(frozen=True)
class Section:
    """One section by its name; ``what`` it holds is said in the learner's words.

    Where it is damaged the file is copied, and this section alone is begun anew.
    """

    name: str
    what: str

    def read(self, checked: Callable[[Any], T]) -> tuple[T, str]:
        """Return what ``checked`` makes of the section, and what the learner should know, usually nothing.

        ``checked`` takes None for a section that is not there, and raises DamagedError. Raises ProgressError
        as ``progress.read`` does.
        """
        kept, message = progress.section(self.name)
        try:
            return checked(kept), message
        except DamagedError:
            return checked(None), self._begin_anew()

    def change(self, change: Callable[[Any], Any]) -> str:
        """Replace the section by what ``change`` makes of it; return what the learner should know.

        ``change`` raises DamagedError. Raises ProgressError if the file cannot be written.
        """
        try:
            return progress.change_section(self.name, change)
        except DamagedError:
            said = self._begin_anew()
            progress.change_section(self.name, change)
            return said

    def _begin_anew(self) -> str:
        source = progress.path()
        try:
            copy = files.copy_aside(source)
        except OSError as error:
            raise progress.ProgressError(
                f"{self.what} cannot be read: that part of {source} is damaged, and the file cannot be "
                f"copied: {error}"
            ) from error
        progress.change_section(self.name, lambda _: {})
        return f"{self.what} could not be read; the file was kept as {copy}, and that part was begun anew"
