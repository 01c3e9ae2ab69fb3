"""A forward and backward pass on fake tensors, written down: memory, bound, largest batch are read off it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from amp_lessons._base.whole_process import without_collecting
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.autocast.running import PreparedRun, gradients_on, losses_of, on_fake_cpu, prepare
from amp_lessons.measure.footprint import Event, Storage, StorageLog
from amp_lessons.precisions import Precision, precision

LossFn = Callable[[Any], torch.Tensor]

_aten: Any = torch.ops.aten
_GPU_KERNELS = {
    _aten.native_dropout,
    _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_efficient_attention,
}


class Work(NamedTuple):
    """One operation's work: the dtype of its first operand, its FLOP if it is a product, its bytes moved."""

    dtype: torch.dtype
    flops: float
    nbytes: int


@dataclass(frozen=True)
class StepRecording:
    """A forward and backward pass of ``model``, which is fake, by the rules and kernels of ``device_type``.

    ``events`` are births and deaths of storages, ``saved`` the storages that autograd kept between the two
    passes, ``work`` the operations that compute something. ``saw_gpu_kernels``: some kernels are not those
    of a CPU. ``saw_recurrent_kernel``: a recurrent layer ran in one kernel of the CPU. ``trains_others``:
    there are gradients of more than the model's parameters, as of inputs.
    """

    model: nn.Module
    precision: Precision
    device_type: str
    events: tuple[Event, ...]
    saved: tuple[Storage, ...]
    work: tuple[Work, ...]
    saw_gpu_kernels: bool
    saw_recurrent_kernel: bool
    trains_others: bool

    def resized(self, nbytes: Callable[[Storage], int]) -> StepRecording:
        """Return the same recording with storages of other sizes."""
        storages = {
            each: replace(each, nbytes=nbytes(each))
            for each in dict.fromkeys(storage for _, storage, _ in self.events)
        }
        events = tuple((phase, storages[storage], sign) for phase, storage, sign in self.events)
        return replace(self, events=events, saved=tuple(storages[each] for each in self.saved))


@gradients_on()
def record_step(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    precision_name: str = "fp32",
    loss_fn: LossFn | None = None,
    device_type: str = "cuda",
    products: bool = False,
) -> StepRecording:
    """Follow a forward and backward pass of ``model(*args, **kwargs)`` on fake tensors, under autocast.

    Of a real model and of inputs a fake copy is taken; a fake model is left as it was. With ``products``
    recurrent layers run as products, whose FLOP count, and gradients are those of the parameters alone.
    Raises ``ValueError`` for an unknown precision and where there is nothing to train, and what the model
    raises.
    """
    kind = precision(precision_name)
    fake, (args, kwargs) = on_fake_cpu(model, (args, kwargs))
    prepared = prepare(fake, args, kwargs, device_type, kind.autocast_dtype, of=model)
    log = _StepLog()
    kernels = cuda_kernels() if device_type == "cuda" else nullcontext()
    recurrent = _recurrent_layers_as_products() if products else nullcontext()
    with without_collecting(), prepared.without_trace(), kernels, gradients_kept(prepared), recurrent:
        saved = follow_step(prepared, loss_fn, log, of_parameters=products)
        return StepRecording(
            fake,
            kind,
            device_type,
            tuple(log.events),
            saved,
            tuple(log.work),
            log.saw_gpu_kernels,
            log.saw_recurrent_kernel,
            not log.leaves <= {id(parameter) for parameter in fake.parameters()},
        )


def follow_step(
    prepared: PreparedRun, loss_fn: LossFn | None, log: StorageLog, *, of_parameters: bool = False
) -> tuple[Storage, ...]:
    """Run forward and backward pass under ``log``; return the storages that were saved between them.

    With ``of_parameters`` no other gradients are computed than those of the model's parameters.
    """
    note_given(prepared, log)
    with log:
        log.phase = "forward"
        with log.following(prepared.model):
            losses = forward(prepared, loss_fn)
        saved = tuple(storage for storage in log.live if storage.saved_dtype is not None)
        log.phase = "backward"
        with log.adding_gradients(losses):
            trained: list[torch.Tensor] = [each for each in prepared.model.parameters() if each.requires_grad]
            backward(losses, trained if of_parameters else None)
    log.note_all([leaf.grad for leaf in _leaves(prepared) if leaf.grad is not None], "gradients")
    return saved


def note_given(prepared: PreparedRun, log: StorageLog) -> None:
    """Follow the storages that are there before a step: parameters, buffers and inputs."""
    log.note_all(prepared.model.parameters(), "parameters")
    log.note_all(prepared.model.buffers(), "buffers")
    log.note_all(tensors_in((prepared.args, prepared.kwargs)), "inputs")


def forward(prepared: PreparedRun, loss_fn: LossFn | None) -> list[torch.Tensor]:
    """Return the losses of a forward pass under autocast."""
    with prepared.autocast():
        return losses_of(prepared.forward(), loss_fn)


def backward(losses: list[torch.Tensor], leaves: list[torch.Tensor] | None = None) -> None:
    """Accumulate the gradients of the sum of ``losses`` in ``leaves``, by default in all that there are."""
    torch.autograd.backward(losses, [torch.ones_like(loss) for loss in losses], inputs=leaves)


@contextmanager
def gradients_kept(prepared: PreparedRun) -> Iterator[None]:
    """Start without gradients, and put back those that were there."""
    before = [(leaf, leaf.grad) for leaf in _leaves(prepared)]
    drop_gradients(prepared)
    try:
        yield
    finally:
        for leaf, gradient in before:
            leaf.grad = gradient


def drop_gradients(prepared: PreparedRun) -> None:
    """Free all gradients that a backward pass has left."""
    for leaf in _leaves(prepared):
        leaf.grad = None


def _leaves(prepared: PreparedRun) -> list[torch.Tensor]:
    """Return the tensors that a backward pass leaves gradients on: parameters, inputs that ask for it."""
    inputs = tensors_in((prepared.args, prepared.kwargs))
    return [tensor for tensor in (*prepared.model.parameters(), *inputs) if tensor.is_leaf]


@contextmanager
def _recurrent_layers_as_products() -> Iterator[None]:
    """Keep an LSTM from the CPU's library, in which it is one operation, whose FLOP nobody counts."""
    library: Any = torch.backends.mkldnn
    before, library.enabled = library.enabled, False
    try:
        yield
    finally:
        library.enabled = before


class _StepLog(StorageLog):
    """A log of storages that also adds up what each operation has to do."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[Work] = []
        self.saw_gpu_kernels = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = super().__torch_dispatch__(func, types, args, kwargs)
        made = list(tensors_in(result))
        if made and not func.is_view and not _accumulates():
            tensors = [*tensors_in([args, kwargs]), *made]
            distinct = {id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}
            count = flop_registry.get(func.overloadpacket)
            flops = float(count(*args, **kwargs, out_val=result)) if count else 0.0
            self.work.append(Work(tensors[0].dtype, flops, sum(distinct.values())))
            self.saw_gpu_kernels |= func.overloadpacket in _GPU_KERNELS
        return result


def _accumulates() -> bool:
    """Say whether autograd only puts a gradient where it belongs now, which computes nothing."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() == "torch::autograd::AccumulateGrad"


# --- two recordings of one model on batches far apart, and what lies between


def line_through(
    few: StepRecording, many: StepRecording, batches: tuple[int, int]
) -> Callable[[int], StepRecording] | None:
    """Return what a recording on any batch is, by those on two of these sizes, or None if they do not tell.

    They do where both have the same events, and each storage has the same size in both, or one that grows
    evenly with the batch from next to nothing: a square of the batch does not, nor what grows in steps.
    """
    (of_few, first), (of_many, second) = _in_order(few.events), _in_order(many.events)
    if of_few != of_many:
        return None
    growth: dict[Storage, int] = {}
    for one, other in zip(first, second, strict=True):
        alike = (one.kind, one.saved_dtype, one.saved_by) == (other.kind, other.saved_dtype, other.saved_by)
        growth[one], rest = divmod(other.nbytes - one.nbytes, batches[1] - batches[0])
        # of a storage that was sliced the end may be missing: a few bytes less than in proportion
        evenly = one.nbytes == other.nbytes or abs(one.nbytes - growth[one] * batches[0]) < growth[one]
        if not alike or rest or not evenly:
            return None
    return lambda batch: few.resized(lambda each: each.nbytes + (batch - batches[0]) * growth[each])


def _in_order(events: tuple[Event, ...]) -> tuple[list[tuple[str, int, int]], list[Storage]]:
    """Return events with the number of their storage, and the storages in the order of their birth.

    What dies at once, such as all that autocast's cache has held, does so in any order.
    """
    numbers: dict[Storage, int] = {}
    steps = [(phase, sign, numbers.setdefault(storage, len(numbers))) for phase, storage, sign in events]
    runs = groupby(steps, key=itemgetter(0, 1))
    in_order = [sorted(run) if sign < 0 else list(run) for (_, sign), run in runs]
    return list(chain.from_iterable(in_order)), list(numbers)
