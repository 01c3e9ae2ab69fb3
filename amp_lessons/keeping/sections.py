"""Sections of the progress file that hold something else than they should."""

from __future__ import annotations

from amp_lessons.keeping import files, progress


def begin_anew(name: str, what: str) -> str:
    """Keep a copy of the file, and begin its section ``name`` anew; the others stay as they are.

    Return what to tell the learner, in whose words the section is ``what``. Raises ProgressError if the file
    cannot be copied.
    """
    source = progress.path()
    try:
        copy = files.copy_aside(source)
    except OSError as error:
        raise progress.ProgressError(
            f"{what} cannot be read: that part of {source} is damaged, and the file cannot be copied: {error}"
        ) from error
    progress.change_section(name, lambda _: {})
    return f"{what} could not be read; the file was kept as {copy}, and that part was begun anew"
