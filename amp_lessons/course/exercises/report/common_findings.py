"""Findings that every exercise can come to: what was handed in, how it behaved, what it raised."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.plain import Other
from amp_lessons.audit.findings import Finding, failed, note, todo

_MANY_CHARACTERS = 100_000
NOT_ATTEMPTED = todo("write the body, then run the check again")
NO_FORK = todo(
    "nothing was checked: a check lets your code run in a process that is forked, and this system cannot "
    "fork; on Windows open the course in WSL 2, or on Colab"
)


def as_it_came(names: tuple[str, ...]) -> Finding:
    """Ask for a change of these functions, which are still the patient's own."""
    changed = f"change {' and '.join(names)} as the card asks"
    return todo(f"this is still the patient's own code; {changed}, then run this check again")


def not_a_function(name: str, given: str) -> Finding:
    """Report that something else was ``given`` than the function ``name``."""
    hint = f"pass the function itself, without calling it: check({name!r}, {name})"
    return failed("not_a_function", f"the check was given {given}, not the function {name}", hint)


def other_signature(name: str, count: int, keywords: tuple[str, ...], why: str) -> Finding:
    """Report that the function ``name`` cannot be called with ``count`` arguments and these keywords."""
    named = "".join(f", {key}=…" for key in keywords)
    said = f"{name} cannot be called with {count} positional arguments{named}: {why}"
    hint = "keep the signature of the stub: the check, like any caller, relies on it"
    return failed("signature", said, hint)


def unfinished(part: str) -> Finding:
    """Report a part of the exercise that is still a stub while another part is written."""
    return failed("unfinished", f"{part} still raises NotImplementedError", f"write {part} too")


def blocking(what: str) -> Finding:
    """Report code that would end, copy or block its process, by ``what`` it did."""
    said = f"your code {what}, which would end, copy or block the notebook's kernel; the check did not let it"
    hint = "return a value, or raise an exception; nothing a training loop does needs such a call"
    return failed("ends_or_blocks_the_process", said, hint)


def patching(names: Sequence[str]) -> Finding:
    """Report that these parts of PyTorch were replaced."""
    said = f"your code replaced {', '.join(names[:3])}: every later cell would have used yours"
    hint = "write your own function or subclass instead of assigning to PyTorch's"
    return failed("patches_torch", said, hint)


def leaving(what: Sequence[str]) -> Finding:
    """Report settings that the learner's code has left changed."""
    return failed(
        "leaves_state_behind",
        f"after your code returned, this was left behind: {', '.join(what)}; everything that runs later "
        "would be affected",
        "leave it alone, or put it back at the end: a with statement or finally does, whatever is raised",
    )


def raised_as(error: str, where: str, doing: str = "") -> Finding:
    """Report an ``error``, in words, that the learner's code raised at a line, "" where none is known."""
    place = f" ({where})" if where else ""
    context = f" {doing}" if doing else ""
    said = f"your code raised {error}{place}{context}"
    return failed("raised", said, "run your code outside the check to see the whole traceback")


def out_of_time(limit_s: float, where: str) -> Finding:
    """Report code that was still running after ``limit_s`` seconds, at a line, "" where none is known."""
    place = f"; it was at {where}" if where else ""
    hint = "look for a loop that never ends, as one over a list that grows meanwhile; on these small "
    hint += "problems a right solution takes well under a second"
    return failed("time_limit", f"your code was still running after {limit_s:g} seconds{place}", hint)


def ended(how: str) -> Finding:
    """Report code that ended the process it ran in; ``how`` says by which signal or exit code."""
    return failed(
        "process_ended",
        f"your code ended the process it ran in ({how}); the notebook's kernel was not affected",
        "return a value, or raise an exception; if you did not end it on purpose, it may have run out of "
        "memory",
    )


def checker_failed(error: Exception) -> Finding:
    """Report a mistake in the check, which must read as one, and must not become a traceback."""
    said = f"the check itself could not cope with this attempt: {describe(error)}"
    hint = "this is a mistake in the course, not in your code; please report it with the code you checked"
    return failed("checker_failed", said, hint)


def about_output(characters: int) -> list[Finding]:
    """Remark on very much that was printed."""
    if characters < _MANY_CHARACTERS:
        return []
    message = f"your code printed {characters:,} characters; the report shows the first few"
    return [note("prints_a_lot", message, "print once per epoch, not once per batch or value")]


def inputs_changed(what: str, hint: str) -> Finding:
    """Report that ``what`` the learner's code was given, in the plural, is no longer the same."""
    said = f"{what} were changed in place: whoever uses them next gets the changed ones"
    return failed("inputs_changed", said, hint)


def blocks_kept(seen: str, hint: str) -> Finding:
    """Report blocks that were to be read once and let go, and were kept; ``seen`` says how that showed."""
    return failed("blocks_kept", seen, hint)


def gradients_cut_off(where: str, to: str = "") -> Finding:
    """Report a result ``where`` no graph leads to what it was made of, or not ``to`` some of it."""
    reached = f" to {to}" if to else ""
    said = f"{where}, no gradient flows{reached}"
    return failed("gradients_cut_off", said, "leave out detach, .data and no_grad")


def wrong_return_type(expected: str, seen: str, hint: str) -> Finding:
    """Report ``seen`` where something else was ``expected``: "two floats were", "a float was"."""
    return failed("wrong_return_type", f"{expected} expected, not {seen}", hint)


ASKS_FOR_CUDA = 'your code asks for "cuda"'


def cuda_replaced(asked: str, effect: str, hint: str, seen: str = ASKS_FOR_CUDA) -> Finding:
    """Remark that the check took "cuda" for the device there is.

    ``asked`` is what the learner's code should have asked instead, ``effect`` what the code does outside the
    check: without a GPU it is not what the check has ``seen``.
    """
    return fixed_device(
        f"{seen} whatever {asked} says; without a GPU, {effect} (here the check used the device there is)",
        hint,
    )


def in_place_of_cuda(asked: set[str], spelling: str, device: str) -> str:
    """Say which ``device`` the check took where ``spelling`` is among what was ``asked`` for "cuda"."""
    return f" (for {device} instead of cuda)" if asked & {spelling, f"{spelling}()"} else ""


def fixed_device(message: str, hint: str) -> Finding:
    """Remark on a device that the learner's code names, and that the check left as it is."""
    return note("hard_coded_device", message, hint)


def number_in(value: Any) -> int | float | None:
    """Return the Python number that ``value`` is, or holds as its only element; None for what is none.

    A bool is no number.
    """
    if isinstance(value, Other):
        return value.number
    value = _only_element(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return int(value) if isinstance(value, Integral) else _as_float(value)


def float_in(value: Any) -> float | None:
    """Return the same as a float: inf where it is too large for one."""
    number = number_in(value)
    return None if number is None else _as_float(number)


def _as_float(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # integers and fractions know no largest number
        return math.inf if number > 0 else -math.inf


def _only_element(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray | np.generic):
        with contextlib.suppress(Exception):  # more than one element, or none in memory
            return value.item()
    return value


def remark_on_type(value: Any, asked: type[int] | type[float]) -> Iterator[Finding]:
    """Remark on the right number in another type than was ``asked`` for; a subclass of it will do."""
    article = "an int" if asked is int else "a float"
    if isinstance(value, Tensor):
        message = f"{article} was asked for, this is a tensor"
        yield note("returned_a_tensor", message, "the tensor's .item() is the Python number in it")
    elif not isinstance(value, asked):
        code = "not_an_int" if asked is int else "not_a_float"
        name = value.kind.rpartition(".")[2] if isinstance(value, Other) else type(value).__name__
        message = f"{article} was asked for, not {name}"
        yield note(
            code, message, "use // for whole numbers, or int()" if asked is int else "float() makes one"
        )
