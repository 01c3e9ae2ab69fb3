"""A recording of a run: tensors that modules were given and returned, gradients and weights, as sketches.

It is small, whatever the size of the model: 500 bytes and a few words for each tensor. As a file it is JSON,
with the sketches in one piece of base64; what is read is checked.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from amp_lessons._base import files
from amp_lessons._base.typed_json import finite, made, of_schema, parsed
from amp_lessons.audit.comparing.sketches import WIDTH

SCHEMA = "amp-lessons recording"
VERSION = 1  # goes up when a key changes its meaning or goes away, not when one is added
_NONE = -1  # instead of the number of a value


class Value(NamedTuple):
    """A tensor that was seen: its place in the order of all, and the number of the value of its gradient.

    ``nonfinite`` counts its inf and NaN; ``gradient`` is -1 where none came.
    """

    order: int
    dtype: str
    shape: tuple[int, ...]
    nonfinite: int = 0
    gradient: int = _NONE


class Call(NamedTuple):
    """One call of a module, the ``number``-th of this module in a step, all counted from 0.

    ``kind`` is its class, ``parent`` the number of the call inside of which it was, ``format`` the coarsest
    number format that it rounds to: what it returns, or what autocast may use inside. ``inputs`` and
    ``outputs`` are numbers of values, by their slot.
    """

    step: int
    module: str
    kind: str
    number: int
    parent: int
    format: str
    order: int
    inputs: dict[str, int]
    outputs: dict[str, int]


class Weight(NamedTuple):
    """A parameter or a buffer, of a ``module``, before a step; numbers of values, -1 for no gradient."""

    step: int
    name: str
    module: str
    value: int
    gradient: int = _NONE


@dataclass(frozen=True)
class How:
    """How a recording was made: versions, device, and whether it was ``nudged`` to see what rounding does.

    ``settings`` are those of PyTorch and of the environment that change numbers, and the seed, by name.
    """

    of: str
    torch: str
    amp_lessons: str
    python: str
    device: str
    began: str
    threads: int = 0
    precision: str = ""
    nudged: bool = False
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Recording:
    """A run, recorded: ``values`` in the order in which they came, and what they belong to.

    ``made_of`` says of each module what PyTorch prints of it ("eps=1e-05"); ``steps`` are the optimizer
    steps that were recorded, ``skipped`` those of them that a scaler left out; ``sketches`` has one row for
    each value. ``recording.save("run.json")`` keeps it, ``Recording.load`` reads it.
    """

    how: How
    steps: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    weights: tuple[Weight, ...] = ()
    values: tuple[Value, ...] = ()
    made_of: dict[str, str] = field(default_factory=dict)
    not_seen: tuple[str, ...] = ()
    ended: str = ""
    sketches: np.ndarray = field(default_factory=lambda: np.zeros((0, WIDTH)), repr=False, compare=False)

    def as_json(self) -> str:
        """Return the recording as one piece of JSON."""
        entry = {name: value for name, value in vars(self).items() if name in self.__dataclass_fields__}
        rows = np.ascontiguousarray(self.sketches, dtype="<f8")
        entry |= {"schema": SCHEMA, "version": VERSION, "how": asdict(self.how)}
        entry |= {name: [each._asdict() for each in entry[name]] for name in ("calls", "weights", "values")}
        entry["sketches"] = base64.b64encode(rows.tobytes()).decode("ascii")
        return json.dumps(finite(entry), allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the recording to a file, whole or not at all. Raises OSError."""
        files.replace(Path(path), self.as_json())

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read a file that ``save`` has written. Raises OSError, and ValueError for what is no recording."""
        try:
            return loads(Path(path).read_text("utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"{path}: this is no recording: it is no text") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @cached_property
    def by_step(self) -> dict[int, list[Weight]]:
        """The weights of each step."""
        found: dict[int, list[Weight]] = {}
        for weight in self.weights:
            found.setdefault(weight.step, []).append(weight)
        return found


def loads(text: str) -> Recording:
    """Read a recording. Raises ValueError for text that is none, or of a version that is not known here."""
    document = of_schema(parsed(text, "recording"), "recording", SCHEMA, VERSION)
    try:
        entry = {name: document.get(name) for name in Recording.__dataclass_fields__ if name in document}
        sketches = _rows(entry.pop("sketches", None))
        recording = made(Recording, entry, unknown_too=True)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"this recording is damaged: {error}") from error
    return _checked(replace(recording, sketches=sketches))


def _rows(packed: Any) -> np.ndarray:
    """Unpack the sketches. Raises ValueError."""
    try:
        data = base64.b64decode(packed, validate=True)
        rows = np.frombuffer(data, dtype="<f8").reshape(-1, WIDTH)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError("this recording is damaged: its sketches cannot be read") from None
    if not np.isfinite(rows).all():
        raise ValueError("this recording is damaged: its sketches are not finite")
    return rows


def _checked(recording: Recording) -> Recording:
    """Return a recording whose numbers of values and calls all lead somewhere. Raises ValueError."""
    if len(recording.sketches) != len(recording.values):
        raise ValueError("this recording is damaged: it has not one sketch for each value")
    if not all(0 <= each < len(recording.values) for each in _numbers(recording)):
        raise ValueError("this recording is damaged: it speaks of values that it does not have")
    if not all(_NONE <= call.parent < index for index, call in enumerate(recording.calls)):
        raise ValueError("this recording is damaged: a call is inside of one that came later")
    return recording


def _numbers(recording: Recording) -> Iterator[int]:
    for call in recording.calls:
        yield from call.inputs.values()
        yield from call.outputs.values()
    yield from (weight.value for weight in recording.weights)
    gradients = [weight.gradient for weight in recording.weights]
    gradients += [value.gradient for value in recording.values]
    yield from (each for each in gradients if each != _NONE)


# --- number formats, as a recording names them

TF32 = "tf32"  # no dtype: products of fp32 whose operands are rounded to 11 bits
_TF32_ROUNDOFF = 2.0**-11

# Of PyTorch's own layers those whose products autocast, or TF32, may round inside.
_MULTIPLIES = (
    nn.modules.linear.Linear,
    nn.modules.linear.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
)


@cache
def unit_roundoff(number_format: str) -> float:
    """Return the largest relative error of rounding to a format, half of its ``eps``; 0 for whole numbers."""
    if number_format == TF32:
        return _TF32_ROUNDOFF
    dtype = getattr(torch, number_format, None)
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return torch.finfo(dtype).eps / 2


def coarsest(formats: Iterable[str]) -> str:
    """Return the format that rounds most, "" of none."""
    return max(formats, key=unit_roundoff, default="")


def name_of(dtype: torch.dtype) -> str:
    """Name a dtype without PyTorch's own name: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def format_of(module: nn.Module, outputs: Iterable[Tensor]) -> str:
    """Return the coarsest format that a call of ``module`` rounds to, here and now.

    That is what it returns; where it may multiply matrices inside, also what autocast or TF32 make of them. A
    layer of PyTorch's own that does not multiply computes as it says.
    """
    outputs = [each for each in outputs if each.is_floating_point()]
    formats = [name_of(each.dtype) for each in outputs]
    pytorchs_own = type(module).__module__.startswith("torch.nn.modules.") and not module._modules
    if outputs and (isinstance(module, _MULTIPLIES) or not pytorchs_own):
        formats += _lowered(module, outputs[0])
    return coarsest(formats)


def _lowered(module: nn.Module, output: Tensor) -> list[str]:
    """Return what products are rounded to at present, beside the dtype in which they are returned."""
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return [name_of(torch.get_autocast_dtype(device))]
    if device != "cuda" or output.dtype != torch.float32:
        return []
    backends: Any = torch.backends
    convolves = isinstance(module, nn.modules.conv._ConvNd)
    setting = backends.cudnn.conv if convolves else backends.cuda.matmul
    return [TF32] if setting.fp32_precision == "tf32" else []
