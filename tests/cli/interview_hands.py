"""What ``amp-lessons interview`` has printed, to be looked at."""

from __future__ import annotations


def said(text):
    """Return what was printed, without its breaks of lines."""
    return " ".join(text.split())


def plain(text):
    """Whether it is without colours, and fits into 80 columns: code is shown as it is written."""
    return "\x1b" not in text and all(len(line) <= 80 for line in text.splitlines())
