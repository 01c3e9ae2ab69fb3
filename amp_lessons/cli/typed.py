"""Numbers and files to write, as they are typed behind a command. A refusal says what would be right.

Files are looked at before a command begins: an interview of 45 minutes must not end in a bad path.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from amp_lessons._base import files

TERMINAL = "-"  # the name of a file that stands for standard output


def refuse(reason: object, status: int = 1) -> int:
    """Print on stderr why a command does not do what it was asked for, and return its exit status."""
    print(reason, file=sys.stderr)
    return status


def add_file(parser: argparse._ActionsContainer, option: str, words: str) -> None:
    """Declare an option that names a file to write."""
    parser.add_argument(option, type=file_to_write, metavar="FILE", help=words)


def whole(least: int | None = 1) -> Callable[[str], int]:
    """Return what reads a whole number of at least ``least``, as ``type`` of an option."""
    right = "a whole number" if least is None else f"a whole number of at least {least}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {right}") from None
        if least is not None and number < least:
            raise argparse.ArgumentTypeError(f"{text} is not {right}")
        return number

    return read


def above_zero(text: str) -> float:
    """Read a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def file_to_write(text: str) -> Path:
    """Read the name of a file that can be written: its folder is there."""
    path = Path(text).expanduser()
    if obstacle := _obstacle(text, path):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {obstacle}")
    return path


def file_or_terminal(text: str) -> Path:
    """Read the name of a file that can be written, or ``-``, which stands for the terminal."""
    return Path(TERMINAL) if text == TERMINAL else file_to_write(text)


def folder_to_write(text: str) -> Path:
    """Read the name of a folder in which files can be made; it may be still to be made itself."""
    path = Path(text).expanduser()
    there = files.nearest_there(path)
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of the folder is empty")
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{there} is a file; name a folder")
    if not files.may_write_in(there):
        raise argparse.ArgumentTypeError(f"you may not write in {there}; name a folder of yours")
    return path


def try_writing(path: Path) -> None:
    """Raise OSError with a sentence if the file cannot be written, before the work for it is done."""
    if path == Path(TERMINAL) or _is_no_file(path):
        return
    try:
        files.try_writing(path)
    except OSError as error:
        raise OSError(files.why_unwritable(error, path)) from error


def write(path: Path, content: str | bytes) -> None:
    """Write a file whole and say so on stderr; ``-`` is printed. Raises OSError with a sentence."""
    if path == Path(TERMINAL):
        assert isinstance(content, str)
        print(content, end="")
        return
    try:
        if _is_no_file(path):
            path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        else:
            files.replace(path, content)
    except OSError as error:
        raise OSError(files.why_unwritable(error, path)) from error
    wrote(path)


def _is_no_file(path: Path) -> bool:
    """Return whether this is a pipe, or /dev/null, which must not be replaced."""
    return path.exists() and not path.is_file()


def wrote(path: Path) -> None:
    """Print which file was written, on stderr: what a command prints may be read by a program."""
    print(f"wrote {path}", file=sys.stderr)


def _obstacle(text: str, path: Path) -> str:
    """Explain why a file cannot be written and what would be right; "" where it can."""
    folder = path.absolute().parent
    if not text.strip():
        return "its name is empty"
    if text == TERMINAL:
        return "name a file; this one does not go to the terminal"
    if path.is_dir():
        return "it is a folder; name a file in it"
    if not folder.is_dir():
        return f"there is no folder {folder}; make it first, or name another"
    if path.exists() and not path.is_file():
        return "" if os.access(path, os.W_OK) else "you may not write there"
    return "" if files.may_write_in(folder) else f"you may not write in {folder}; name a folder of yours"
