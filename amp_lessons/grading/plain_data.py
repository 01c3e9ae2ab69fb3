"""Values that pass between processes as data: numbers, texts, tensors and what holds them, and nothing else.

What is read back is of exactly these types: whatever class a learner's value had, with whatever ``__eq__``,
a number arrives as a number, and what is none of them as an ``Opaque``.
"""

from __future__ import annotations

import base64
import builtins
from collections.abc import Mapping
from numbers import Integral
from typing import Any

_DEEPEST = 12
_MOST_BITS = 4096


class UnreadableError(ValueError):
    """What came is not what ``encoded`` makes."""


def encoded(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON can hold it."""
    if depth > _DEEPEST:
        return {"opaque": "deeply nested"}
    if value is None or isinstance(value, bool):
        return value
    if value is Ellipsis:
        return {"ellipsis": 1}
    if isinstance(value, Integral) and type(value).__module__ != "numpy":
        return {"int": hex(int(value))} if int(value).bit_length() <= _MOST_BITS else {"opaque": "int"}
    if type(value) is float:
        return {"float": value.hex()}
    if isinstance(value, str):
        return {"text": str(value)[:100_000]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encoded(each, depth + 1) for each in value]}
    if isinstance(value, Mapping):
        return {"dict": [[encoded(key, depth + 1), encoded(each, depth + 1)] for key, each in value.items()]}
    return _of_numbers(value)


def _of_numbers(value: Any) -> Any:
    """Encode what PyTorch and NumPy make, without loading either."""
    kind = type(value).__module__.partition(".")[0]
    if kind == "torch":
        import torch

        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.Tensor):
            return {"tensor": _bytes_of(value)}
    if kind == "numpy":
        import numpy as np

        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return {"numpy": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, float):
        return {"float": float(value).hex()}
    return {"opaque": type(value).__name__[:100]}


def _bytes_of(tensor: Any) -> list[Any]:
    import torch

    values = tensor.detach().cpu().contiguous()
    data = bytes(values.reshape(-1).view(torch.uint8).numpy()) if values.numel() else b""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), base64.b64encode(data).decode()]


def decoded(message: Any, depth: int = 0) -> Any:
    """Return what was encoded. Raises UnreadableError for what was not."""
    if depth > _DEEPEST + 1:
        raise UnreadableError("too deep")
    if message is None or isinstance(message, bool):
        return message
    if not isinstance(message, dict) or len(message) != 1:
        raise UnreadableError(f"not a value: {str(message)[:100]}")
    ((kind, held),) = message.items()
    try:
        return _DECODERS[kind](held, depth + 1)
    except UnreadableError:
        raise
    except Exception as error:
        raise UnreadableError(f"not a {kind[:20]}") from error


def _tensor(held: Any, depth: int) -> Any:
    import torch

    name, shape, data = held
    dtype = _dtype(name, depth)
    content = bytearray(base64.b64decode(data, validate=True))
    if not content:
        return torch.empty([0]).to(dtype).reshape(shape)  # any other shape raises
    return torch.frombuffer(content, dtype=torch.uint8).view(dtype).reshape(shape)


def _dtype(name: Any, depth: int) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise UnreadableError("no dtype")
    return dtype


def _numpy(held: Any, depth: int) -> Any:
    import numpy as np

    dtype = np.dtype(str(held[0]))
    if dtype.kind not in "biuf":
        raise UnreadableError("no number")
    return np.frombuffer(base64.b64decode(held[1], validate=True), dtype, count=1)[0]


def _opaque(held: Any, depth: int) -> Any:
    name = str(held)[:100]
    return type(name if name.isidentifier() else "object", (), {"__module__": "elsewhere"})()


_DECODERS: dict[str, Any] = {
    "int": lambda held, depth: int(str(held)[: _MOST_BITS // 2], 16),
    "float": lambda held, depth: float.fromhex(str(held)),
    "text": lambda held, depth: str(held)[:100_000],
    "list": lambda held, depth: [decoded(each, depth) for each in held],
    "tuple": lambda held, depth: tuple(decoded(each, depth) for each in held),
    "dict": lambda held, depth: {decoded(key, depth): decoded(each, depth) for key, each in held},
    "ellipsis": lambda held, depth: ...,
    "tensor": _tensor,
    "dtype": _dtype,
    "numpy": _numpy,
    "opaque": _opaque,
}


def error_named(name: str, text: str) -> Exception:
    """Make an exception that reads as the one that was raised over there."""
    known = getattr(builtins, name, None)
    text = text[:500]
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, UnicodeError):
        return known(text)
    return type(name if name.isidentifier() else "Exception", (Exception,), {})(text)
