"""Values that travel between a judge and a worker: numbers, texts, tensors, generators and what holds them.

A message is a JSON text followed by bytes, those of its tensors too. Reading one builds exactly these types
and runs no code of the sender's; what is none of them arrives as ``Other``: its type's name, maybe a number.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_HEAD = struct.Struct("!QQ")
HEAD = _HEAD.size
_DEEPEST, _MOST_PARTS, _LONGEST_TEXT = 12, 200_000, 1_000_000
_MOST_BITS = 4000  # of a whole number: JSON refuses those of more than 4,300 digits
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
}


class GarbledError(ValueError):
    """What came is no message."""


@dataclass(frozen=True)
class Other:
    """Something that does not travel: the name of its type, and its number where it is one."""

    kind: str
    number: float | None = None

    def __str__(self) -> str:
        return f"an object of the type {self.kind}"


@dataclass(frozen=True)
class Handle:
    """An object that stays in the worker, by its number there; its first ones are what was handed in."""

    number: int


def encode(value: Any) -> bytes:
    """Return ``value`` as a message."""
    blobs: list[bytes] = []
    text = json.dumps(_out(value, blobs, 0)).encode()
    body = b"".join(blobs)
    return _HEAD.pack(len(text), len(body)) + text + body


def _out(value: Any, blobs: list[bytes], depth: int) -> Any:
    def nested(each: Any) -> Any:
        return _out(each, blobs, depth + 1)

    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)[:_LONGEST_TEXT]
    if isinstance(value, int) and value.bit_length() < _MOST_BITS:
        return int(value)
    if type(value) is bytes:
        blobs.append(value)
        return {"bytes": len(value)}
    if depth <= _DEEPEST and type(value) in (list, tuple):
        return {"list" if type(value) is list else "tuple": [nested(each) for each in value]}
    if depth <= _DEEPEST and type(value) is dict:
        return {"dict": [[nested(key), nested(each)] for key, each in value.items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, Handle):
        return {"handle": value.number}
    if isinstance(value, torch.Generator) and value.device.type == "cpu":
        return {"generator": nested(value.get_state())}
    if isinstance(value, Tensor) and _is_transposed(value):
        return {"transposed": nested(value.t())}
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized:
        flat = value.detach().cpu().contiguous().reshape(-1)
        blobs.append(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return {"tensor": [str(value.dtype).removeprefix("torch."), list(value.shape), len(blobs[-1])]}
    return {"other": [f"{type(value).__module__}.{type(value).__qualname__}"[:100], _number(value)]}


def _is_transposed(value: Tensor) -> bool:
    dense = value.layout == torch.strided and not value.is_quantized
    return dense and value.dim() == 2 and not value.is_contiguous() and value.t().is_contiguous()


def _number(value: Any) -> float | None:
    for number in (float, int):
        with contextlib.suppress(Exception):  # it is the learner's: asking may raise what it likes
            return float(number(value))
    return None


def decode(message: bytes, held: Callable[[int], Any] | None = None) -> Any:
    """Return what was encoded; ``held`` makes objects of handles' numbers. Raises GarbledError."""
    try:
        length, body = _HEAD.unpack_from(message)
        if HEAD + length + body != len(message):
            raise GarbledError("the message has another length than it says")
        read = _Reader(memoryview(message)[HEAD + length :], held)
        return read(json.loads(message[HEAD : HEAD + length]), 0)
    except GarbledError:
        raise
    except Exception as error:
        raise GarbledError(f"this is no message: {type(error).__name__}") from None


def size(head: bytes, most: float = math.inf) -> int:
    """Return how many bytes follow this head of a message. Raises GarbledError for too many."""
    length, body = _HEAD.unpack(head)
    if length + body > most:
        raise GarbledError("the message is too long")
    return length + body


class _Reader:
    """Builds a value from JSON; ``left`` bounds how many parts it may have."""

    def __init__(self, body: memoryview, held: Callable[[int], Any] | None) -> None:
        self._body, self._at, self._left, self._held = body, 0, _MOST_PARTS, held

    def __call__(self, told: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST + 3:
            raise GarbledError("the message has too many parts")
        if told is None or isinstance(told, (bool, int, float, str)):
            return told
        ((kind, what),) = told.items()
        if kind in ("list", "tuple"):
            parts = [self(each, depth + 1) for each in what]
            return parts if kind == "list" else tuple(parts)
        if kind == "dict":
            return {self(key, depth + 1): self(each, depth + 1) for key, each in what}
        if kind == "dtype":
            return _DTYPES[what]
        if kind == "bytes":
            return bytes(self._piece(what))
        if kind == "other":
            return Other(str(what[0])[:100], None if what[1] is None else float(what[1]))
        if kind == "tensor":
            return self._tensor(*what)
        if kind == "transposed":
            return self(what, depth + 1).t()
        if kind == "generator":
            return torch.Generator().set_state(self(what, depth + 1))
        if kind == "handle" and self._held is not None:
            return self._held(int(what))
        raise GarbledError("the message holds a kind of value that is not known")

    def _tensor(self, name: str, shape: list[int], nbytes: int) -> Tensor:
        dtype = _DTYPES[name]
        if nbytes != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
            raise GarbledError("a tensor has another size than its shape")
        piece = bytearray(self._piece(nbytes))
        if not nbytes:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(piece, dtype=torch.uint8).view(dtype).reshape(shape)

    def _piece(self, nbytes: int) -> memoryview:
        begin, self._at = self._at, self._at + nbytes
        if not begin <= self._at <= len(self._body):
            raise GarbledError("the message has fewer bytes than it says")
        return self._body[begin : self._at]
