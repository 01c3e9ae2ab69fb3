"""See every operation that is called, under its own name, before autocast and autograd have touched it.

PyTorch's dispatcher works through a list of keys for each call; one of the first,
``TESTING_ONLY_GenericMode``, stands above autocast and is used by nothing. Every operation is given a kernel
for it. The key counts only in a thread that switches it on, so these kernels cost nothing and change nothing
anywhere else.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast.cast_policy import UnreadablePyTorchError, autocast_key, overload

_KEY_NAME = "TESTING_ONLY_GenericMode"
_NAMESPACES_LEFT_OUT = ("prim", "prims", "debugprims", "rngprims", "profiler")


class OperationCall(NamedTuple):
    """One call of one operation: its dispatcher name, its arguments and the dispatch keys still to come."""

    name: str
    keys: torch._C.DispatchKeySet
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Observer(Protocol):
    """An object that gets every call of an operation before it runs, and decides how it runs."""

    def called(self, call: OperationCall, run: Callable[[bool], Any]) -> Any:
        """Handle one call and return its result: ``run(True)`` also shows the calls that it makes in turn."""


@dataclass
class _Watch:
    """The observer at work; one at a time, since the kernels are shared by the whole process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    owner: int | None = None
    observer: Observer | None = None
    libraries: dict[str, torch.library.Library] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)


_watch = _Watch()


@contextmanager
def watching(observer: Observer, python_below: bool) -> Iterator[None]:
    """Show ``observer`` every call of this block and of the backward passes started in it.

    ``python_below`` says that fake tensors or another dispatch mode are at work below autograd. A block in
    another thread waits for its turn; one inside this block raises ``RuntimeError``.
    """
    if _watch.owner == threading.get_ident():
        raise RuntimeError(
            "a recording is running already; a model cannot be recorded while it is being recorded"
        )
    key = _key()
    with _watch.lock:
        _register_new_operations()
        _watch.owner, _watch.observer = threading.get_ident(), observer
        try:
            with torch._C._IncludeDispatchKeyGuard(key), _BelowAutograd() if python_below else nullcontext():
                yield
        finally:
            _watch.owner, _watch.observer = None, None


def unwatched() -> AbstractContextManager[Any]:
    """Within a watched block, make calls that are not recorded."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_key()))


class _BelowAutograd(TorchDispatchMode):
    """Hide what Python does below autograd: fake tensors call operations to work out their results."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with unwatched():
            return func(*args, **(kwargs or {}))


@cache
def _key() -> torch._C.DispatchKey:
    try:
        key = torch._C._dispatch_key_parse(_KEY_NAME)
        above_autocast = torch._C._dispatch_keyset_full_after(key).has(autocast_key("cpu"))
    except (AttributeError, RuntimeError) as error:
        raise UnreadablePyTorchError(
            f"torch {torch.__version__} has no dispatch key {_KEY_NAME}: {error}"
        ) from error
    if not above_autocast:
        raise UnreadablePyTorchError(f"torch {torch.__version__} runs autocast before {_KEY_NAME}")
    return key


def _register_new_operations() -> None:
    """Give each operation its watching kernel, once; imported libraries may have brought more since."""
    if not _watch.libraries:
        _library("_").fallback(torch.library.fallthrough_kernel, _KEY_NAME)
    for name in set(torch._C._dispatch_get_all_op_names()) - _watch.known:
        namespace, _, rest = name.partition("::")
        if namespace not in _NAMESPACES_LEFT_OUT:
            _library(namespace).impl(rest, _watching_kernel(name), _KEY_NAME, with_keyset=True)
        _watch.known.add(name)


def _library(namespace: str) -> torch.library.Library:
    if namespace not in _watch.libraries:
        _watch.libraries[namespace] = torch.library.Library(namespace, "IMPL")
    return _watch.libraries[namespace]


def _watching_kernel(name: str) -> Callable[..., Any]:
    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        def run(watch_inside: bool) -> Any:
            if watch_inside and not _has_numbers_for_tensors(name, args):
                below = torch._C._dispatch_keyset_full_after(_key())
                return overload(name).redispatch(keys & below, *args, **kwargs)
            with unwatched():
                return overload(name)(*args, **kwargs)

        observer = _watch.observer
        return observer.called(OperationCall(name, keys, args, kwargs), run) if observer else run(False)

    return kernel


def _has_numbers_for_tensors(name: str, args: tuple[Any, ...]) -> bool:
    """Say whether numbers stand for tensors, as in ``x.divide(2)``, which only a new call takes."""
    given = (args[place] for place in _tensor_places(name) if place < len(args))
    return any(isinstance(each, (int, float, complex)) for each in given)


@cache
def _tensor_places(name: str) -> tuple[int, ...]:
    arguments = enumerate(overload(name)._schema.arguments)
    return tuple(i for i, each in arguments if str(each.type) == "Tensor" and not each.kwarg_only)


# --- count what autograd keeps for the backward pass


class SavedBytes:
    """The storages that autograd saved, each once; those of a model's parameters and buffers are not counted.

    ``measure.footprint.StorageLog`` counts them too, in its own way, and tests compare the two:
    they are two witnesses on purpose. This one sees saved tensors alone, and costs a ledger almost nothing.

    Storages are held until the count is dropped: a freed one could lend its address to the next and hide it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        owned = chain(model.parameters(), model.buffers())
        self._owned = {tensor.untyped_storage()._cdata for tensor in owned}
        self._held: dict[int, tuple[torch.UntypedStorage, torch.dtype]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Count the storage behind a saved tensor, under the dtype of the first tensor saved from it."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._owned:
            self._held.setdefault(storage._cdata, (storage, tensor.dtype))

    @property
    def by_dtype(self) -> dict[torch.dtype, int]:
        """Bytes per dtype, most first."""
        counts: Counter[torch.dtype] = Counter()
        for storage, dtype in self._held.values():
            counts[dtype] += storage.nbytes()
        return dict(counts.most_common())


@contextmanager
def counting_saved(model: torch.nn.Module) -> Iterator[SavedBytes]:
    """Count what autograd saves in this block; a backward pass, also one within the model, finds it."""
    saved = SavedBytes(model)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        with unwatched():
            saved.add(tensor)
            return tensor.detach()  # the tensor itself would keep its own graph alive

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        yield saved
