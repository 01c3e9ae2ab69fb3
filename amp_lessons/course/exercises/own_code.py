"""The code behind an attempt, and whether it is the same as another, or still the stub's."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import textwrap
from typing import Any


def source_of(attempt: Any) -> str:
    """Return the source of what was handed in: of a function in a notebook, all of its cell.

    A class is all its methods, a dict its values. It is empty where no source can be had.
    """
    try:
        return _source_of(attempt)
    except Exception:  # it is the learner's object: asking for its parts may raise whatever it likes
        return ""


def same_code(one: str, other: str) -> bool:
    """Say whether two sources are the same but for blanks, comments and line breaks."""
    return bool(one) and _parsed(one) == _parsed(other)


def is_still(attempt: Any, stub: str) -> bool:
    """Say whether functions are still those that ``stub`` defines, but for blanks, comments and line breaks.

    False where that cannot be told, as of code that was run by ``exec``.
    """
    functions = attempt if isinstance(attempt, tuple) else (attempt,)
    try:
        return list(map(_definition, functions)) == list(map(ast.dump, _definitions(stub)))
    except Exception:  # it is the learner's object, as above
        return False


def _definition(function: Any) -> str:
    """Return what defines a function. A ValueError says that it is wrapped in more than its decorators."""
    wrappers: list[Any] = []
    inner = inspect.unwrap(function, stop=wrappers.append)
    (definition,) = _definitions(textwrap.dedent(inspect.getsource(inner.__code__)))
    if len(wrappers) != len(definition.decorator_list):
        raise ValueError(f"{definition.name} has {len(wrappers)} wrappers")
    return ast.dump(definition)


def _definitions(source: str) -> list[ast.FunctionDef]:
    return [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]


def _source_of(attempt: Any) -> str:
    if isinstance(attempt, tuple):
        return "\n\n".join(dict.fromkeys(filter(None, map(_source_of, attempt))))
    if inspect.isclass(attempt):  # in a notebook nothing else leads from a class to its cell
        return _source_of(tuple(filter(inspect.isfunction, vars(attempt).values())))
    if isinstance(attempt, dict):
        return repr(attempt)
    return _source_of_function(inspect.unwrap(attempt)) if inspect.isfunction(attempt) else ""


def _source_of_function(function: Any) -> str:
    file = function.__code__.co_filename
    if not os.path.exists(file):  # a cell is kept in memory, as a whole
        return "".join(linecache.getlines(file))
    return textwrap.dedent(inspect.getsource(function))


def _parsed(source: str) -> str:
    """Return what Python reads in a source; one with a notebook's magic in it is taken as it is."""
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError):
        return source.strip()
