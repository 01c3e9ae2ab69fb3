"""What holds for every exercise: can it be called, did it raise, did it leave the process as it was."""

from __future__ import annotations

import dis
import inspect
import reprlib
from typing import Any

import torch

from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.report.results import Finding, failed, todo

NOT_ATTEMPTED = "write the body, then run the check again"


def uncallable(attempt: Any, name: str, *args: Any, **kwargs: Any) -> Finding | None:
    """Say why ``attempt`` cannot be called with these arguments, if it cannot."""
    if not callable(attempt):
        return failed(
            "not_a_function",
            f"the check was given {describe(attempt)}, not the function {name}",
            f"pass the function itself, without calling it: check({name!r}, {name})",
        )
    try:
        inspect.signature(attempt).bind(*args, **kwargs)
    except TypeError as error:
        keywords = "".join(f", {key}=…" for key in kwargs)
        return failed(
            "signature",
            f"{name} cannot be called with {len(args)} positional arguments{keywords}: {error}",
            "keep the signature of the stub: the check, like any caller, relies on it",
        )
    except ValueError:  # a built-in without a signature: calling it will tell
        pass
    return None


class _Describing(reprlib.Repr):
    """Describe values without running code of the learner's: their ``__repr__`` may raise, or never end."""

    def repr_instance(self, value: Any, level: int) -> str:
        if type(value).__module__ in ("builtins", "torch"):
            return super().repr_instance(value, level)
        return f"<{type(value).__name__}>"


def describe(value: Any) -> str:
    """Say in a few words what ``value`` is."""
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = _Describing().repr(value).replace("\n", " ")
    return f"{type(value).__name__} {text[:57] + '…' if len(text) > 58 else text}"


def exception(outcome: Outcome) -> str:
    """Write the exception of the learner's code as the end of a traceback does."""
    return ": ".join(filter(None, [type(outcome.error).__name__, outcome.error_text]))


def not_attempted(outcome: Outcome) -> Finding | None:
    """Recognise the stub's own ``raise NotImplementedError``."""
    if type(outcome.error) is NotImplementedError and _raised_by_statement(outcome.error):
        return todo(NOT_ATTEMPTED)
    return None


def _raised_by_statement(error: BaseException) -> bool:
    """Whether a ``raise`` statement raised ``error``: PyTorch's kernels raise NotImplementedError too."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def misconduct(outcome: Outcome) -> Finding | None:
    """Report what no attempt may do: end the process, patch PyTorch, leave its settings changed."""
    if outcome.refused:
        return failed(
            "ends_or_blocks_the_process",
            f"your code called {', '.join(dict.fromkeys(outcome.refused))}, which would end, copy or block "
            "the notebook's kernel; the check did not let it",
            "return a value, or raise an exception; nothing a training loop does needs such a call",
        )
    if outcome.patched:
        return failed(
            "patches_torch",
            f"your code replaced {', '.join(outcome.patched[:3])}; the check put back the original, because "
            "every later cell would have used yours",
            "write your own function or subclass instead of assigning to PyTorch's",
        )
    if outcome.left_behind and outcome.error is None:
        return failed(
            "leaves_state_behind",
            f"after your code returned, this was left behind: {', '.join(outcome.left_behind)}; everything "
            "that runs later would be affected",
            "use a with statement, which puts the setting back even when an exception is raised",
        )
    return None


def raised(outcome: Outcome, doing: str = "") -> Finding:
    """Report an exception of the learner's code, with the line it came from."""
    place = f" ({outcome.where})" if outcome.where else ""
    context = f" {doing}" if doing else ""
    return failed(
        "raised",
        f"your code raised {exception(outcome)}{place}{context}",
        "run your code outside the check to see the whole traceback",
    )


def unwritten_part(outcome: Outcome, part: str) -> Finding | None:
    """Report a part of the exercise that is still a stub while another part is written."""
    if not_attempted(outcome) is None:
        return None
    return failed("unfinished", f"{part} still raises NotImplementedError", f"write {part} too")
