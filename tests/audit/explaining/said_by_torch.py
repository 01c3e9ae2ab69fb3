"""Every message in the Python source of the installed PyTorch: what it raises, asserts and warns of.

Read with ``ast``, not by running it. The C++ part is not there to be read; its messages are provoked, or
looked for in the libraries.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from amp_lessons.audit.explaining.message import SEVERAL, all_messages

TORCH = Path(importlib.util.find_spec("torch").origin).parent

# All that these say is about mixed precision.
AMP_FILES = re.compile(r"torch/(amp|cuda/amp|cpu/amp)/\w+\.py|torch/distributed/fsdp/sharded_grad_scaler\.py")

# What the others say is, where it has one of these words.
AMP_WORDS = re.compile(
    r"(?i:autocast|grad_?scaler|\bgrad_scale\b|found_inf|loss.?scal|(half|mixed|low|reduced).precision"
    r"|\bb?float16|\bb?fp16\b|\bbf16\b|float8|\bfp8\b|\bnan (gradient|value)|non-finite(?! float:)"
    r"|uniform (\w+ )*dtype)"
    r"|\bAMP\b"
)

# Tests of PyTorch itself, and code that it writes out for compilers: nobody's training says what they say.
NOT_READ = {"testing", "include", "lib", "bin", "share", "__pycache__", "_vendor", "codegen", "torchgen"}
SPEAKING = {
    *("warn", "warn_once", "deprecated", "unimplemented"),
    *("_check", "_check_value", "_check_type", "_raise_assert_with_print"),
}
LOGGING = {"warning", "warning_once", "error", "rank_zero_warn"}  # by which frameworks speak, too
UNKNOWN_VALUE = "x"  # stands for whatever is filled in when the program runs

_LIKELY = re.compile(
    rb"autocast|gradscaler|grad_scal|found_inf|precision|float16|fp16|bf16|float8|fp8|nan |non-finite"
    rb"|loss.scal|uniform "
)
_IN_A_STRING = re.compile(rb"[\"'][^\"'\n]*(?:%s| amp )" % _LIKELY.pattern)
_NEXT_BLOCK = re.compile(r"\n\n+(?=@|def |class |async def )")  # at the left margin


@dataclass(frozen=True)
class Said:
    """A message, with ``x`` for every value that is filled in, and the file that says it."""

    file: str
    text: str

    @property
    def about_amp(self) -> bool:
        return bool(AMP_FILES.fullmatch(self.file) or AMP_WORDS.search(self.text))


@cache
def said_by_torch() -> tuple[Said, ...]:
    """Return what all files say that speak of mixed precision, once each, other messages among it."""
    return tuple(dict.fromkeys(said for path in _files() for said in _in_file(path)))


def explained_by(text: str) -> list[str]:
    """Return the entries that a text has; those that many say in their own words give way to others."""
    saying = [message for message in all_messages() if message.matches(text)]
    own = [message.name for message in saying if message.source != SEVERAL]
    return own or [message.name for message in saying]


def _files() -> Iterator[Path]:
    for folder, below, names in os.walk(TORCH):
        below[:] = sorted(set(below) - NOT_READ)
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _in_file(path: Path) -> Iterator[Said]:
    file = path.relative_to(TORCH.parent).as_posix()
    source = path.read_bytes()
    if AMP_FILES.fullmatch(file):
        yield from (Said(file, text) for text in messages(source.decode()))
        return
    small = source.lower()
    if _LIKELY.search(small) and _IN_A_STRING.search(small):
        blocks = _NEXT_BLOCK.split(source.decode("utf-8", "replace"))
        telling = [block for block in blocks if _IN_A_STRING.search(block.lower().encode())]
        yield from (Said(file, text) for block in telling for text in messages(block))


def said_in(file: Path) -> Iterator[str]:
    """Yield what a file says, of PyTorch's or of a framework's, which may say it by a logger."""
    ours = TORCH in file.parents
    yield from messages(file.read_text("utf-8"), SPEAKING if ours else SPEAKING | LOGGING)


def messages(source: str, speaking: Set[str] = SPEAKING) -> Iterator[str]:
    """Yield what a piece of Python raises, asserts or warns of, where any of it is written out.

    ``speaking`` are the functions by whose calls it warns.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:  # the block was cut within a string; no message that matters stands in one
        return
    nodes = list(ast.walk(tree))
    named = _texts_by_name(nodes)
    for node in nodes:
        text = " ".join(_text(part, named) for part in _spoken(node, speaking))
        if re.search(r"[A-Za-z]{2}", text):
            yield " ".join(text.split())


def _spoken(node: ast.AST, speaking: Set[str]) -> list[ast.expr]:
    """Return the expressions of a statement or call that are said when it runs."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return _arguments(node.exc)
    if isinstance(node, ast.Assert) and node.msg is not None:
        return [node.msg]
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return _arguments(node) if name in speaking else []
    return []


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _texts_by_name(nodes: list[ast.AST]) -> dict[str, list[str]]:
    """Return what is assigned or added to each variable, for ``reason = "..."`` and ``raise E(reason)``."""
    named: dict[str, list[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            text = _text(node.value, {})
            if isinstance(target, ast.Name) and " " in text:
                named.setdefault(target.id, []).append(text)
    return named


def _text(node: ast.expr, named: dict[str, list[str]]) -> str:
    """Return the words of an expression that makes a message."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else UNKNOWN_VALUE
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, named) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left, named) + (_text(node.right, named) if isinstance(node.op, ast.Add) else "")
    if isinstance(node, ast.Lambda):
        return _text(node.body, named)
    if isinstance(node, ast.Name):
        return " ".join(named.get(node.id, [UNKNOWN_VALUE]))
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return _text(node.func.value, named)
    return UNKNOWN_VALUE
