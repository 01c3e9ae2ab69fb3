"""Remarks that several exercises make."""

from __future__ import annotations

from amp_lessons.exercises.report.results import Finding, note

_CODE = "hard_coded_device"


def cuda_replaced(asked: str, effect: str, hint: str) -> Finding:
    """Remark that the check took "cuda" for the device there is.

    ``asked`` is what the learner's code should have asked instead, ``effect`` what the code does outside the
    check: without a GPU it is not what the check has seen.
    """
    return note(
        _CODE,
        f'your code asks for "cuda" whatever {asked} says; without a GPU, {effect} (here the check used the '
        "device there is)",
        hint,
    )


def fixed_device(message: str, hint: str) -> Finding:
    """Remark on a device that the learner's code names, and that the check left as it is."""
    return note(_CODE, message, hint)
