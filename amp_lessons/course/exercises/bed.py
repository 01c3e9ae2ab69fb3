"""The bench: what every judge of an exercise needs, and does with a worker in which the learner's code is.

A judge is a generator, ``judge(worker, draw)``, in an exercise's ``check.py``. It runs in a clean process of
its own, calls the learner's function there by ``function``, compares what comes back with what is right, and
yields findings, or ends with ``Rejected``. Nothing but plain data comes from a worker.
"""

from __future__ import annotations

import importlib
import inspect
import json
import linecache
import os
import secrets
import socket
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.client import Ended, Limits, Raised, Worker, pickled
from amp_lessons._base.worker.host import Connection, HostEndedError, host
from amp_lessons._base.worker.plain import Handle, Other
from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.results import SideBySide

Said = Finding | SideBySide
Judge = Callable[[Worker, torch.Generator], Iterator[Said]]

PRELOAD = (
    "amp_lessons.audit.report.report",
    "amp_lessons.audit.watch",
    "amp_lessons.course.exercises.bed",
    "amp_lessons.course.exercises.bed_there",
    "cloudpickle",
)
OPTIMIZERS_NEED = "torch._dynamo"  # which the first one imports, in a second
_THERE = "amp_lessons.course.exercises.bed_there"
_LONGEST_PRINTED = 2000
_ANSWERED = common_findings.ended("your code answered in the place of the check")


# --- how a judge ends


class Rejected(Exception):  # noqa: N818 - not an error: the answer to a question
    """An attempt is not accepted, and the check is over: ``said`` is all that its report holds."""

    def __init__(self, *said: Said) -> None:
        super().__init__(*said)
        self.said = said


def reject(code: str, message: str, hint: str) -> NoReturn:
    """End the check with this one finding."""
    raise Rejected(failed(code, message, hint))


def require_none(mistakes: Iterable[Finding], *comparisons: SideBySide) -> None:
    """End the check with the first of these mistakes and with ``comparisons``, unless there is none."""
    mistake = first(mistakes)
    if mistake is not None:
        raise Rejected(mistake, *comparisons)


# --- what a judge calls


@dataclass(frozen=True)
class LearnersFunction:
    """A function of the learner's, in a worker; what it returns is plain data."""

    worker: Worker
    name: str
    number: int = 0

    def __call__(self, *args: Any, about: str = "", **kwargs: Any) -> Any:
        """Return what the function returns; ``about`` says in a rejection what it was called for.

        Arguments that are tensors are afterwards as the function has left them. Rejects one that is still
        the stub, raises, or leaves a setting of PyTorch's changed.
        """
        return self.called_by(f"{_THERE}:call", *args, about=about, kwargs=kwargs)[0]

    def called_by(
        self,
        there: str,
        *args: Any,
        about: str = "",
        kwargs: Mapping[str, Any] | None = None,
        extra: tuple[Any, ...] = (),
    ) -> tuple[Any, bool]:
        """Let ``there``, "module:function", call it; return the result, and whether that noticed something.

        It is given the function, its arguments, ``kwargs`` and ``extra``, and returns what ``call`` does.
        """
        given = Handle(self.number), list(args), dict(kwargs or {}), *extra
        told = asked(self.worker, there, *given, about=about)
        if not isinstance(told, dict) or not isinstance(told.get("args"), list):
            raise Rejected(_ANSWERED)
        if isinstance(told.get("left"), list) and told["left"]:
            raise Rejected(common_findings.leaving([str(each) for each in told["left"]]))
        _give_back(args, told["args"])
        return told.get("result"), told.get("noticed") is True

    def exception(self, *args: Any) -> Raised | None:
        """Return what the function raises, None where it returns."""
        try:
            self.worker.call(f"{_THERE}:call", Handle(self.number), list(args), {})
        except Raised as raised:
            return raised
        return None

    def each(self, arguments: Sequence[Sequence[Any]], about: Callable[[int], str]) -> list[Any]:
        """Return what the function returns for each list of arguments; ``about`` says which raised."""
        given = [list(each) for each in arguments]
        told = self.worker.call(f"{_THERE}:call_each", Handle(self.number), given)
        results = told.get("results") if isinstance(told, dict) else None
        if not isinstance(results, list) or (told["raised"] is None and len(results) != len(given)):
            raise Rejected(_ANSWERED)
        if told["raised"] is not None:  # at the one that comes after these
            require_not_raised(told["raised"], about(len(results)))
        return results


def asked(worker: Worker, of: Handle | str, *args: Any, about: str = "", part: str = "", **how: Any) -> Any:
    """Return what a call there returns; reject the attempt where it raises, in ``part`` of it if any."""
    try:
        return worker.call(of, *args, **how)
    except Raised as raised:
        raise Rejected(said_of(raised, about, part)) from None


def require_not_raised(told: Any, about: str = "", part: str = "") -> None:
    """Reject an attempt of which a function of ours there tells an exception; None is none."""
    if told is not None:
        raise Rejected(said_of(as_raised(told), about, part))


def require_unchanged(after: Sequence[Tensor], given: Sequence[Tensor], what: str, hint: str) -> None:
    """Reject an attempt that has changed tensors, ``what`` it was given, in place; a NaN may stay one."""
    pairs = (
        [each.nan_to_num(0.0, torch.inf, -torch.inf) for each in both]
        for both in zip(after, given, strict=True)
    )
    if any(a.dtype != b.dtype or not torch.equal(a, b) for a, b in pairs):
        raise Rejected(common_findings.inputs_changed(what, hint))


def reject_type(expected: str, returned: Any, hint: str, what: str = "") -> NoReturn:
    """Reject what was returned, ``what`` it came of, where something else was ``expected``: "a float was"."""
    seen = f"{described(returned)}{what and f', {what}'}"
    raise Rejected(common_findings.wrong_return_type(expected, seen, hint))


def require_tensor(returned: Any, dtype: torch.dtype, shape: Sequence[int], what: str, hint: str) -> Tensor:
    """Return a tensor of this dtype and shape; reject anything else, ``what`` it came of."""
    if not isinstance(returned, Tensor) or returned.dtype != dtype or returned.shape != torch.Size(shape):
        reject_type(f"a tensor of dtype {dtype} and shape {tuple(shape)} was", returned, hint, what)
    return returned


def as_raised(told: Any) -> Raised:
    """Read what a function of ours there says of an exception."""
    kinds, text, line, by_statement = told
    return Raised([str(each) for each in kinds], str(text), str(line), by_statement is True)


def _give_back(args: Sequence[Any], after: Sequence[Any]) -> None:
    """Change tensors, at any depth of lists and tuples, as the function has changed its own."""
    other = common_findings.inputs_changed("the arguments", "compute with copies, not in place")
    for mine, its in zip(args, after, strict=False):
        if isinstance(mine, Tensor) and isinstance(its, Tensor):
            if mine.dtype != its.dtype or mine.shape != its.shape:
                raise Rejected(other)
            with torch.no_grad():
                mine.copy_(its)
        elif isinstance(mine, (list, tuple)) and isinstance(its, (list, tuple)):
            if len(mine) != len(its):
                raise Rejected(other)
            _give_back(mine, its)


def function(worker: Worker, name: str, *args: Any, number: int = 0, **kwargs: Any) -> LearnersFunction:
    """Return the learner's function, which can be called with arguments like these; reject anything else."""
    told = worker.call(f"{_THERE}:uncallable", Handle(number), len(args), list(kwargs))
    if isinstance(told, list) and len(told) == 2:
        code, text = map(str, told)
        raise Rejected(
            common_findings.not_a_function(name, text)
            if code == "not_a_function"
            else common_findings.other_signature(name, len(args), tuple(kwargs), text)
        )
    return LearnersFunction(worker, name, number)


def require_class(worker: Worker, name: str, number: int = 0) -> None:
    """Reject what is no class, an instance or a function say."""
    if not worker.call("inspect:isclass", Handle(number)):
        seen = worker.call("amp_lessons._base.text.describing:describe", Handle(number))
        message = f"the check was given {seen}, not the class {name}"
        reject("not_a_class", message, "pass the class itself, without making an instance")


def said_of(raised: Raised, about: str = "", part: str = "") -> Finding:
    """Report an exception of the learner's code, or that it, or a ``part`` of it, is still the stub."""
    if raised.kinds[0] == "NotImplementedError" and raised.by_statement:
        return common_findings.unfinished(part) if part else common_findings.NOT_ATTEMPTED
    first = next(iter(raised.text.strip().splitlines()), "")[:300]
    error = ": ".join(filter(None, [raised.kinds[0], first]))
    return common_findings.raised_as(error, raised.line, about)


def line_of(where: str) -> str:
    """Return the learner's line of a stack that faulthandler has written."""
    for line in where.rpartition("(most recent call first):\n")[2].splitlines():  # it may have forged others
        file, _, rest = line.strip().removeprefix('File "').partition('", line ')
        if rest and not any(place in file for place in ("site-packages", "/amp_lessons/", "/lib/python")):
            number = rest.split()[0]
            source = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
            return f"line {number}" + (f": {source}" if source else "")
    return ""


def described(value: Any) -> str:
    """Put into words what came back."""
    return f"{value}" if isinstance(value, Other) else describe(value)


# --- the judge's process


def judged(
    exercise_id: str,
    hosts: Connection,
    payload: dict[str, Any],
    limits: Limits,
    seed: int,
    by_cuda_rules: bool = False,
) -> dict[str, Any]:
    """Let an exercise's judge call what is in ``payload`` in a worker; return what it says as plain data."""
    said: list[Said] = []
    draw = torch.Generator().manual_seed(seed)
    undrawn = draw.get_state()
    for file, text in payload["lines"].items():  # a message may quote one
        linecache.cache[file] = len(text), None, text.splitlines(True), file
    worker = Worker(hosts, payload, limits)
    try:
        with worker:
            if by_cuda_rules:
                worker.call(f"{_THERE}:by_cuda_rules")
            judge = importlib.import_module(f"amp_lessons.course.exercises.{exercise_id}.check").judge
            said += dict.fromkeys(judge(worker, draw))
    except Rejected as rejected:
        said = list(rejected.said)
    except Raised as raised:
        loaded = worker.handed_in or "pickle" not in payload
        said = [said_of(raised) if loaded else _not_taken_along(str(raised))]
    except Ended as error:
        said = [common_findings.ended(error.detail)]
        if error.how == "time":
            said = [common_findings.out_of_time(limits.cpu_s, line_of(error.where))]
    except HostEndedError:
        raise
    except Exception as error:  # a mistake in the check, or an answer in a form that ours never have
        said = [common_findings.checker_failed(error)]
    said += common_findings.about_output(worker.characters)
    return {
        "findings": [astuple(each) for each in said if isinstance(each, Finding)],
        "comparisons": [astuple(each) for each in said if isinstance(each, SideBySide)],
        "printed": worker.text[:_LONGEST_PRINTED],
        "seed": None if torch.equal(draw.get_state(), undrawn) else seed,
    }


def judge(
    control: socket.socket, channel: socket.socket, exercise_id: str, seed: int, cpu_s: float, cuda: bool
) -> Any:
    """Judge in a process of its own: the pickle comes by the channel, and what is returned goes there."""
    stream = channel.makefile("rb")
    head = json.loads(stream.readline())
    payload = {"lines": head["lines"], "pickle": stream.read()}
    return judged(exercise_id, Connection(control), payload, Limits(cpu_s), seed, cuda)


# --- the kernel's side


def examine(exercise_id: str, attempt: Any, cpu_s: float, seed: int | None = None) -> dict[str, Any]:
    """Let a process of its own judge an attempt; return what ``judged`` does. Raises KeyboardInterrupt.

    Without a ``seed``, from 0 to 2**31 - 1, cases are drawn anew.
    """
    seed = secrets.randbits(31) if seed is None else seed
    if not hasattr(os, "fork"):
        return unjudged(common_findings.NO_FORK)
    try:
        pickle = pickled(attempt)
    except Exception as error:
        return unjudged(_not_taken_along(f"{type(error).__name__}: {error}"))
    for _ in range(2):  # the host may have ended since, and a new one is at hand
        try:
            return _asked(exercise_id, attempt, pickle, cpu_s, seed)
        except HostEndedError:
            host(PRELOAD).close()
    return _asked(exercise_id, attempt, pickle, cpu_s, seed)


def unjudged(finding: Finding) -> dict[str, Any]:
    """Return what ``judged`` does where nothing could be judged."""
    return {"findings": [astuple(finding)], "comparisons": [], "printed": "", "seed": None}


def _asked(exercise_id: str, attempt: Any, pickle: bytes, cpu_s: float, seed: int) -> dict[str, Any]:
    hosts, exercise = host(PRELOAD), shelf.find(exercise_id)
    if exercise.meets_optimizers:
        hosts.have_imported(OPTIMIZERS_NEED)
    hosts.have_imported(f"amp_lessons.course.exercises.{exercise_id}.check")
    message = json.dumps({"lines": _lines_of(attempt)}).encode() + b"\n" + pickle
    return said_by_judge(f"{__name__}:judge", message, exercise_id, seed, cpu_s, exercise.meets_autocast)


def said_by_judge(judge: str, message: bytes, *request: Any) -> dict[str, Any]:
    """Return what ``judge``, "module:function", says in a process of its own. Raises HostEndedError.

    It is given a way to its host, one by which ``message`` comes, and the ``request``.
    """
    hosts = host(PRELOAD)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = hosts.ask("judge", judge, *request, ends=[theirs.fileno()])
        theirs.close()
        try:
            ours.sendall(message)
            ours.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        finally:
            hosts.ask("end", pid)
    if not answer:
        raise HostEndedError("the judge has ended without a word")
    said: dict[str, Any] = json.loads(answer)
    return said


def _not_taken_along(error: str) -> Finding:
    first = next(iter(error.strip().splitlines()), "")[:200]
    return failed(
        "not_taken_along",
        f"your code cannot be taken to the process in which it is checked: {first}",
        "it may use modules, numbers, texts, tensors on the CPU and functions of yours; make files, locks "
        "and generators inside it",
    )


def _lines_of(attempt: Any) -> dict[str, str]:
    """Return the source of the notebook's cells that an attempt comes from, by their names."""
    files = {each.__code__.co_filename for each in _functions_in(attempt)}
    return {file: "".join(linecache.getlines(file)) for file in files}


def _functions_in(attempt: Any) -> Iterator[types.FunctionType]:
    for each in attempt if isinstance(attempt, tuple) else (attempt,):
        if inspect.isclass(each):
            yield from filter(inspect.isfunction, vars(each).values())
        elif inspect.isfunction(unwrapped := inspect.unwrap(each) if callable(each) else each):
            yield unwrapped
