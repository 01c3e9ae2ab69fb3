"""The parts of one training step's memory."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import ModulePaths

COMPUTED = "computed (no GPU needed)"
MEASURED = "measured here"

_MOMENTS = 400  # as many as a picture can show


@dataclass(frozen=True)
class Saved:
    """Bytes that one module made autograd keep for the backward pass, in one dtype.

    ``weight_copy`` tells the 16-bit copies of parameters, which autocast made, from activations.
    """

    module: str
    dtype: torch.dtype
    nbytes: int
    weight_copy: bool


@dataclass(frozen=True)
class Footprint:
    """The memory of one training step in its steady state, in bytes.

    ``saved`` is what the forward pass leaves for the backward pass, in the order in which modules ran.
    ``at_peak`` is what was allocated at the worst moment, by kind (see ``storages.KINDS``); ``"temporary"``
    is what is needed in passing, and ``"workspace"`` what a GPU's allocator handed out beyond the tensors
    that PyTorch shows. ``history`` is the course of the step. ``source`` says where the numbers come from.
    ``warning`` is a sentence where they are known to leave out much, as of a recurrent layer; else empty.
    """

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    saved: tuple[Saved, ...]
    at_peak: Mapping[str, int]
    peak_phase: str
    history: tuple[Moment, ...]
    source: str
    warning: str = ""

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated at any moment."""
        return sum(self.at_peak.values())

    @property
    def saved_bytes(self) -> dict[torch.dtype, int]:
        """Bytes saved for the backward pass by dtype, most first; see ``saved_activation_bytes``."""
        return dict(_bytes_by_dtype(self.saved).most_common())

    @property
    def weight_copy_bytes(self) -> int:
        """The part of that which is copies of parameters."""
        return sum(saved.nbytes for saved in self.saved if saved.weight_copy)

    def saved_by_module(
        self, depth: int | None = None, *, weight_copies: bool | None = None
    ) -> dict[str, dict[torch.dtype, int]]:
        """Return what is saved by module path and dtype, in the order of running.

        Paths are cut to their first ``depth`` names, so that the modules of a layer count together.
        ``weight_copies`` selects: True the copies of parameters alone, False all but them.
        """
        layers: dict[str, list[Saved]] = {}
        for saved in self.saved:
            if weight_copies not in (None, saved.weight_copy):
                continue
            layers.setdefault(".".join(saved.module.split(".")[:depth]), []).append(saved)
        return {path: dict(_bytes_by_dtype(members)) for path, members in layers.items()}


def footprint(events: Iterable[Event], saved: Iterable[Storage], source: str, warning: str = "") -> Footprint:
    """Sum up the events of one step; ``saved`` storages were kept between the two passes."""
    moments = [moment for moment in moments_of(events) if moment.phase]
    worst = max(moments, key=lambda moment: moment.total_bytes)
    held = moments[-1].live_bytes
    return Footprint(
        parameter_bytes=held.get("parameters", 0),
        gradient_bytes=held.get("gradients", 0),
        optimizer_bytes=held.get("optimizer state", 0),
        saved=_saved_rows(saved),
        at_peak=dict(worst.live_bytes),
        peak_phase=worst.phase,
        history=tuple(_thin_out(moments)),
        source=source,
        warning=warning,
    )


def _saved_rows(storages: Iterable[Storage]) -> tuple[Saved, ...]:
    """Add up saved storages by module, dtype and whether they are copies of weights."""
    rows: Counter[tuple[str, torch.dtype, bool]] = Counter()
    for storage in storages:
        assert storage.saved_dtype is not None
        rows[storage.saved_by, storage.saved_dtype, storage.kind == "weight copies"] += storage.nbytes
    return tuple(Saved(module, dtype, nbytes, copy) for (module, dtype, copy), nbytes in rows.items())


def _bytes_by_dtype(rows: Iterable[Saved]) -> Counter[torch.dtype]:
    counts: Counter[torch.dtype] = Counter()
    for row in rows:
        counts[row.dtype] += row.nbytes
    return counts


def _thin_out(moments: list[Moment]) -> list[Moment]:
    """Keep the worst moment of each stretch of the step, and so the peak itself."""
    stretch = -(-len(moments) // _MOMENTS)
    numbered = groupby(enumerate(moments), key=lambda item: item[0] // stretch)
    return [max((moment for _, moment in group), key=lambda m: m.total_bytes) for _, group in numbered]


# --- follow every storage of a training step, of real or fake tensors, until it is freed

Kind = Literal[
    "parameters",
    "buffers",
    "inputs",
    "optimizer state",
    "gradients",
    "weight copies",
    "saved activations",
    "temporary",
]
_DEVICE_OF = torch.ops.prim.device.default
_RECURRENT_KERNEL = torch.ops.aten.mkldnn_rnn_layer.default
_ADD = torch.ops.aten.add.Tensor
KINDS: tuple[Kind, ...] = Kind.__args__  # type: ignore[attr-defined]


class Moment(NamedTuple):
    """The bytes that were allocated after one event, by kind."""

    phase: str
    live_bytes: Mapping[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of all kinds together."""
        return sum(self.live_bytes.values())


class _Sum(NamedTuple):
    """A sum of gradients that autograd just made: the storages of its first term and of itself, its event."""

    of: int
    into: int
    event: int


@dataclass(eq=False)
class Storage:
    """One storage: its size, what it turned out to be for, and which module saved it in which dtype."""

    nbytes: int
    kind: Kind = "temporary"
    saved_dtype: torch.dtype | None = None
    saved_by: str = ""


Event = tuple[str, Storage, int]  # in which phase, which storage, and 1 where it was born, -1 where it died


def moments_of(events: Iterable[Event]) -> Iterator[Moment]:
    """Go through all events again, now that it is known what each storage was for."""
    live: Counter[Kind] = Counter()
    for phase, storage, sign in events:
        live[storage.kind] += sign * storage.nbytes
        yield Moment(phase, {kind: live[kind] for kind in KINDS if live[kind]})


class StorageLog(TorchDispatchMode):
    """Within this context, write down when storages appear and when they are freed.

    ``phase`` is written down with each event. What a kernel allocates and frees inside itself is not seen.
    Where a tensor's gradient has several parts, autograd adds each in place to the first if nobody else holds
    that, but to new memory as soon as anybody watches, as this log does. Within ``adding_gradients`` it is
    written down as it would be if nobody watched. ``leaves`` are the ids of all tensors that get a gradient.

    ``saw_recurrent_kernel`` says whether a recurrent layer ran in one kernel, as an LSTM does on a CPU with
    oneDNN. Its workspace is larger than all that is seen, and fake tensors know nothing of it.

    Of saved tensors ``autocast``'s ledger keeps a count of its own, which knows nothing of this one: two
    witnesses on purpose, which tests compare.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.saw_recurrent_kernel = False
        self._live: dict[int, Storage] = {}
        self.events: list[Event] = []
        self.leaves: set[int] = set()
        self._watches: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._paths = ModulePaths()
        self._finished_node: torch.autograd.graph.Node | None = None
        self._last_sum: _Sum | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else each call goes through a wrapper for the compiler, which nobody uses here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE_OF:  # half of the calls of a step on fake tensors, and it allocates nothing
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        self._last_sum = None
        self.saw_recurrent_kernel |= func is _RECURRENT_KERNEL
        result = func(*args, **(kwargs or {}))
        is_weight_copy = func is torch.ops.aten._to_copy.default and self._is_parameter(args[0])
        for tensor in tensors_in(result):
            self._note(tensor, "weight copies" if is_weight_copy else "temporary")
        if func is _ADD and self._adds_gradients(*args):
            self._last_sum = _Sum(_key(args[0]), _key(result), len(self.events) - 1)
        return result

    def note_all(self, tensors: Iterable[torch.Tensor], kind: Kind) -> None:
        """Follow the storages of these tensors, and say what they are for unless that is known."""
        for tensor in tensors:
            storage = self._note(tensor, kind)
            if storage.kind == "temporary":
                storage.kind = kind

    @property
    def live(self) -> list[Storage]:
        """The storages that are allocated now."""
        return list(self._live.values())

    @property
    def live_bytes(self) -> int:
        """Bytes that are allocated now."""
        return sum(storage.nbytes for storage in self._live.values())

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Also write down what autograd saves in this block, and for which module of ``model``."""
        hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed)
        with self._paths.following(model), hooks:
            yield

    @contextmanager
    def adding_gradients(self, losses: Iterable[torch.Tensor]) -> Iterator[None]:
        """Within the backward pass from ``losses``, let sums of gradients take the memory that they would."""
        for node in _graph_of(losses):
            if node.next_functions:
                node.register_hook(self._node_finished)
            elif hasattr(node, "variable"):
                self.leaves.add(id(node.variable))
        try:
            yield
        finally:
            self._finished_node = None

    def _note(self, tensor: torch.Tensor, kind: Kind) -> Storage:
        storage, key = tensor.untyped_storage(), _key(tensor)
        if key not in self._live:
            self._watches[key] = weakref.ref(storage, lambda _: self._freed(key))
            self._live[key] = Storage(storage.nbytes(), kind)
            self.events.append((self.phase, self._live[key], 1))
        return self._live[key]

    def _freed(self, key: int) -> None:
        del self._watches[key]
        storage = self._live.pop(key)
        if self._last_sum and self._last_sum.of == key:  # so nobody else held it, and it would be the sum now
            self._live[self._last_sum.into] = storage
            del self.events[self._last_sum.event]
            self._last_sum = None
        else:
            self.events.append((self.phase, storage, -1))

    def _node_finished(self, *_: Any) -> None:
        self._finished_node = torch._C._current_autograd_node()

    def _adds_gradients(self, first: torch.Tensor, second: Any) -> bool:
        """Say whether autograd adds parts of a gradient, and into the first but for being watched.

        It does so when an operation's own backward has run, and before the next one's does. A view shares
        memory with the tensor that it is of, so it is never added to; nor is a tensor added to itself. See
        ``can_accumulate_inplace`` in PyTorch's ``torch/csrc/autograd/input_buffer.cpp``.
        """
        if self._finished_node is None or torch.is_grad_enabled():
            return False
        between_nodes = torch._C._current_autograd_node() is self._finished_node
        return between_nodes and not first._is_view() and _key(first) != _key(second)

    def _is_parameter(self, tensor: torch.Tensor) -> bool:
        storage = self._live.get(_key(tensor))
        return storage is not None and storage.kind == "parameters"

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = self._note(tensor, "temporary")
        if storage.kind == "temporary":
            storage.kind = "saved activations"
        if storage.kind not in ("parameters", "buffers") and storage.saved_dtype is None:
            storage.saved_dtype, storage.saved_by = tensor.dtype, self._paths.current
        # An operation's result would keep the operation alive that saved it; nothing else has to be detached
        return tensor if tensor.grad_fn is None else tensor.detach()


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _graph_of(losses: Iterable[torch.Tensor]) -> set[torch.autograd.graph.Node]:
    """Return the nodes of the graph of ``losses``; the last ones hand gradients to leaves."""
    found: set[torch.autograd.graph.Node] = set()
    waiting = [loss.grad_fn for loss in losses]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return found
