"""What a ledger is made of: casts, rows, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from amp_lessons.autocast.cast_policy import Policy
from amp_lessons.formats.dtypes import dtype_name

Phase = Literal["forward", "backward"]


@dataclass(frozen=True)
class Cast:
    """One conversion between floating dtypes, of the named parameter or (empty name) of another tensor."""

    source: torch.dtype
    target: torch.dtype
    elements: int
    parameter: str = ""

    @property
    def bytes(self) -> int:
        """Size of the copy that the cast wrote."""
        return self.elements * self.target.itemsize


@dataclass(frozen=True)
class Row:
    """One operation that ran.

    ``module`` is the path of the module whose forward called it (in the backward phase: whose forward
    operation this is the gradient of), ``""`` for the model itself. ``op`` is the ATen name without overload.
    ``input_dtypes`` are those of the tensors it was called with, in order, before autocast cast them;
    ``output_dtype`` is that of its first result, None if that is no tensor. ``casts`` are those that autocast
    inserted for it (in the backward phase: the conversions that autograd makes to undo a cast of the
    forward). ``policy`` is the rule that decided: that of the operation or, if it is in no list, of the last
    listed operation that it called in turn, which is then named by ``through``. None means that no list has
    it, or that ``autocast`` was off there.
    """

    module: str
    op: str
    input_dtypes: tuple[torch.dtype, ...]
    output_dtype: torch.dtype | None
    casts: tuple[Cast, ...]
    policy: Policy | None
    phase: Phase = "forward"
    autocast: bool = True
    through: str = ""
    output_shape: tuple[int, ...] = ()

    @property
    def rule(self) -> str:
        """The rule in words."""
        if self.policy is not None:
            return self.policy.value
        if self.phase == "backward":
            return "dtype of the forward"
        if self.op == "aten::to" and self.output_dtype not in self.input_dtypes:
            return "cast in the code"
        return "follows its inputs" if self.autocast else "autocast off"

    def __str__(self) -> str:
        inputs = ", ".join(dtype_name(dtype) for dtype in self.input_dtypes)
        output = dtype_name(self.output_dtype) if self.output_dtype else "no tensor"
        rule = f"{self.rule} through {self.through}" if self.through else self.rule
        casts = f", {len(self.casts)} cast{'s' if len(self.casts) > 1 else ''}" if self.casts else ""
        return f"{self.module or '(model)'}: {self.op}({inputs}) -> {output} [{rule}{casts}]"


@dataclass(frozen=True)
class Summary:
    """What some rows of a ledger add up to."""

    operations: int
    output_dtypes: Mapping[torch.dtype, int]
    casts: int
    cast_bytes: int


@dataclass(frozen=True)
class Ledger:
    """The rows of one run of a model, in the order in which the operations ran, and what they add up to.

    ``saved_bytes`` is what autograd kept for the backward pass, by dtype (see
    ``measure.saved_activation_bytes``). ``where`` says on what and by whose rules the model ran; ``notes``
    say what is unusual about it.
    """

    rows: tuple[Row, ...]
    device_type: str
    dtype: torch.dtype | None
    where: str
    saved_bytes: Mapping[torch.dtype, int]
    notes: tuple[str, ...] = ()

    @property
    def forward(self) -> tuple[Row, ...]:
        """The rows of the forward pass."""
        return tuple(row for row in self.rows if row.phase == "forward")

    @property
    def backward(self) -> tuple[Row, ...]:
        """The rows of the backward pass; none unless one was recorded."""
        return tuple(row for row in self.rows if row.phase == "backward")

    @property
    def casts(self) -> tuple[Cast, ...]:
        """All casts, in order."""
        return tuple(cast for row in self.rows for cast in row.casts)

    @property
    def cast_bytes(self) -> int:
        """Bytes that all casts wrote."""
        return sum(cast.bytes for cast in self.casts)

    @property
    def weight_copy_bytes(self) -> int:
        """Bytes of the half-precision copies of parameters, part of ``saved_bytes`` where they are kept."""
        return sum(cast.bytes for cast in self.casts if cast.parameter)

    def total(self) -> Summary:
        """All rows together."""
        return _summary(self.rows)

    def by_module(self) -> dict[str, Summary]:
        """One summary per module path, in the order in which they first ran."""
        return _grouped(self.rows, lambda row: row.module)

    def by_rule(self) -> dict[str, Summary]:
        """One summary per rule (see ``Row.rule``), in the order in which they first decided."""
        return _grouped(self.rows, lambda row: row.rule)

    def by_op(self) -> dict[str, Summary]:
        """One summary per operation, in the order in which they first ran."""
        return _grouped(self.rows, lambda row: row.op)


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, Summary]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: _summary(members) for name, members in groups.items()}


def _summary(rows: Iterable[Row]) -> Summary:
    rows = list(rows)
    casts = [cast for row in rows for cast in row.casts]
    outputs = Counter(row.output_dtype for row in rows if row.output_dtype is not None)
    return Summary(len(rows), dict(outputs.most_common()), len(casts), sum(cast.bytes for cast in casts))
