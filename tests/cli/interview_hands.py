"""``amp-lessons interview``, driven as a pipe drives it."""

from __future__ import annotations

import io
import sys

import pytest

from amp_lessons.cli import cli


class _Typed(io.StringIO):
    """Lines as somebody types them; one that is a function is called first, and is none."""

    def __init__(self, lines):
        super().__init__()
        self._waiting = list(lines)

    def readline(self, size=-1):
        while self._waiting and callable(self._waiting[0]):
            self._waiting.pop(0)()
        return f"{self._waiting.pop(0)}\n" if self._waiting else ""


@pytest.fixture
def answer(monkeypatch, capsys):
    """Call the command with these lines on its standard input; return status and output."""

    def call(*words, lines=()):
        monkeypatch.setattr(sys, "stdin", _Typed(lines))
        status = cli.main(["interview", *words])
        return status, capsys.readouterr().out

    return call


def said(text):
    """Return what was printed, without its breaks of lines."""
    return " ".join(text.split())


def plain(text):
    """Whether it is without colours, and fits into 80 columns: code is shown as it is written."""
    return "\x1b" not in text and all(len(line) <= 80 for line in text.splitlines())
