"""Watch what a training does with tensors beside its layers: averages, sums, positions, constants, logs.

Only methods that few tensors come by are replaced, and all but a glance at the dtype is left to those that
are in 16 bits.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from amp_lessons.audit.recorder import events, graph
from amp_lessons.audit.recorder.averages import Averages, few_of
from amp_lessons.audit.recorder.later import local, may_read
from amp_lessons.audit.recorder.places import is_own, line_outside, own_line
from amp_lessons.audit.recorder.replacing import replaced, warning_as_ever
from amp_lessons.audit.recorder.spies import Recorder
from amp_lessons.precisions import HALF_DTYPES

_WHOLE = frozenset((torch.int16, torch.int32, torch.int64))
_PARTS = ("log_softmax", "softmax", "logsumexp", "exp", "log", "pow", "cumsum", "prod")
_PRODUCTS = ("matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "addbmm")
_LEAST_POSITIONS = 257  # bf16 has all whole numbers up to 256
_FEW, _CASTS = 64, 4  # numbers, and casts of so many, that are compared with what cos is taken of
_ROW = 8  # whole numbers without a gap are positions
_MOST_COUNTED = 65536  # whole numbers that are compared with what 16 bits make of them
_LONG_SUM = 4  # terms
_FAR_OFF = 0.01  # of the sum of the terms' magnitudes: rounding once takes 0.4 % at most, in bf16


@contextmanager
def watching_beside(recorder: Recorder) -> Iterator[None]:
    """Record checkpoints and averages of whole models, which no compiler ever traces."""
    spies = _Spies(recorder)
    averaged = partial(_then, recorder, spies.averages.model_averaged, before=few_of)
    with (
        replaced(torch, "save", partial(_then, recorder, spies.saved)),
        replaced(torch, "load", partial(_then, recorder, spies.loaded)),
        replaced(torch.optim.Optimizer, "load_state_dict", partial(_then, recorder, spies.resumed)),
        replaced(AveragedModel, "update_parameters", averaged),
    ):
        yield


@contextmanager
def watching_tensors(recorder: Recorder) -> Iterator[None]:
    """Record what happens to tensors inside; compiled code would stumble over it."""
    spies = _Spies(recorder)
    with ExitStack() as stack, ExitStack() as functions:
        for owner, name, wrap in spies.methods():
            stack.enter_context(replaced(owner, name, wrap))
        _watch_functions(spies, functions)
        stack.enter_context(replaced(torch.jit, "script", partial(_aside, recorder, spies, functions)))
        yield


def _watch_functions(spies: _Spies, functions: ExitStack) -> None:
    for owner, name, wrap in spies.functions():
        functions.enter_context(replaced(owner, name, wrap))


def _aside(recorder: Recorder, spies: _Spies, functions: ExitStack, original: Any) -> Any:
    """Put the functions themselves back while code is scripted: PyTorch's compiler knows them by identity.

    It looks the names in a class up in the frame that ``script`` was called from, one further up than here,
    and calls ``script`` itself for the functions that it comes upon.
    """
    depth = 0

    def script(obj: Any, optimize: Any = None, _frames_up: int = 0, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        recorder.optimizers.breaking.stop()  # what was replaced last is given back first
        functions.close()
        depth += 1
        try:
            with warning_as_ever():
                return original(obj, optimize, _frames_up + 1, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                _watch_functions(spies, functions)

    return script


def _then(
    recorder: Recorder,
    after: Callable[..., None],
    original: Any,
    with_graph: bool = False,
    before: Callable[..., Any] | None = None,
) -> Any:
    """Call the original, and then let ``after`` see its result and its arguments.

    ``with_graph`` says that only tensors with a history matter: an optimizer reads hundreds of others. In
    place of the result ``after`` is given what ``before`` has kept of the arguments, where there is one.

    What the original calls itself is no affair of the spies. Under a mode, such as that of
    ``torch.set_default_device``, PyTorch calls them once more in there: it finds methods by their names to
    hand them to the mode.
    """

    def spied(*args: Any, **kwargs: Any) -> Any:
        if recorder.here.in_original or (with_graph and args[0].grad_fn is None):
            return original(*args, **kwargs)
        was = recorder.safely(before, *args, **kwargs) if before is not None else None
        recorder.here.in_original = True
        try:
            result = original(*args, **kwargs)
        finally:
            recorder.here.in_original = False
        recorder.safely(after, result if before is None else was, *args, **kwargs)
        return result

    return spied


@dataclass(frozen=True)
class _Sum:
    """A running sum, its terms so far, what they come to in float64, and the sum of their magnitudes.

    ``told`` says that it was found to stand still.
    """

    tensor: weakref.ref[Tensor]
    exact: float
    terms: int = 0
    magnitudes: float = 0.0
    told: bool = False

    def with_term(self, number: float) -> _Sum:
        """Add a term."""
        magnitudes = (self.magnitudes or abs(self.exact)) + abs(number)
        return replace(self, exact=self.exact + number, terms=self.terms + 1, magnitudes=magnitudes)


class _Spies:
    """The spies, and what each looks for in a call."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sums: dict[int, _Sum] = {}  # running ones
        self._held: set[str] = set()  # whose states the file holds that was read last
        # casts to a dtype in 16 bits: a few numbers before and after, which may be positions, and the line
        self._rounded: list[tuple[Tensor, Tensor, torch.dtype, events.Line]] = []
        self.averages = Averages(recorder)

    def methods(self) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
        """Yield the methods of tensors that are replaced, and what makes their spies."""
        for look, *names in (
            (self.cast, "to", "half", "bfloat16", "type_as"),
            (self.added, "__add__", "__radd__", "add"),
            (self.clamped, "clamp", "clamp_min"),
            (self.measured, "norm"),
            (self.product, "__matmul__", "__rmatmul__"),
        ):
            yield from ((Tensor, name, self._then(look)) for name in names)
        for name in ("item", "tolist", "__float__"):
            yield Tensor, name, self._then(self.read, with_graph=True)
        for change, *names in (
            (self.averages.lerped, "lerp_"),
            (self._multiplied_in_place, "mul_", "__imul__"),
            (self._divided_in_place, "div_", "__itruediv__"),
            (self._added_in_place, "add_", "__iadd__"),
            (self.averages.subtracted, "sub_", "__isub__"),
        ):
            yield from ((Tensor, name, self._then(change, before=few_of)) for name in names)
        yield Tensor, "copy_", self._then(self.averages.copied, before=self.averages.before_copy)

    def functions(self) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
        """Yield the functions of PyTorch's that are replaced, and what makes their spies."""
        yield torch, "arange", self._then(self.counted)
        yield torch, "where", self._then(self.chosen)
        yield torch, "norm", self._then(self.measured)
        yield torch.linalg, "vector_norm", self._then(self.measured)
        for module in (torch, torch._C._nn):
            for name in filter(_names_a_loss, dir(module)):
                yield module, name, self._then(self.lost)
        for look, *names in (
            (self.lost, "mean", "sum"),
            (self.made_finite, "nan_to_num", "nan_to_num_"),
            (self.parted, *_PARTS),
            (self.turned, "cos", "sin"),
            (self.product, *_PRODUCTS),
        ):
            yield from ((owner, name, self._then(look)) for owner in (torch, Tensor) for name in names)
        for name in ("einsum", "tensordot"):
            yield torch, name, self._then(self.product)
        yield torch, "_foreach_lerp_", self._then(self.averages.many_lerped, before=few_of)
        yield torch, "_foreach_add_", self._then(self.averages.many_added, before=few_of)
        for name in ("_foreach_mul_", "_foreach_div_"):
            yield torch, name, self._then(self._many_multiplied, before=few_of)

    def _then(self, look: Callable[..., None], **how: Any) -> Callable[[Any], Any]:
        return partial(_then, self._recorder, look, **how)

    # --- losses, and gradients made finite

    def lost(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Note where a loss was made, or what may become one."""
        if isinstance(result, Tensor) and result.grad_fn is not None and result.numel() == 1:
            graph.note_line(result, graph.MADE_AT, own_line())

    def parted(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Note where what may be a part of a loss was computed in 16 bits."""
        if isinstance(result, Tensor) and result.dtype in HALF_DTYPES and result.grad_fn is not None:
            graph.note_line(result, graph.PART_AT, own_line())

    def made_finite(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Report inf and NaN taken out of a gradient that is still scaled."""
        tensor = next(iter(args), kwargs.get("input"))
        if isinstance(tensor, Tensor) and self._recorder.is_scaled_gradient(tensor):
            broken = may_read(tensor) and not bool(local(tensor).isfinite().all())
            self._recorder.record(events.MadeFinite, broken=broken)

    # --- checkpoints

    def saved(self, result: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        """Look for the states of optimizers and scalers in what is written."""
        kinds = set(_states_in(obj))
        self._recorder.record(events.Saved, optimizer="optimizer" in kinds, scaler="scaler" in kinds)

    def loaded(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Note whose states a file holds."""
        self._held = set(_states_in(result))

    def resumed(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Tell that training goes on from such a file."""
        if "optimizer" in self._held:
            self._recorder.record(events.Resumed, scaler="scaler" in self._held)

    # --- whole numbers in 16 bits

    def counted(self, result: Tensor, *args: Any, **kwargs: Any) -> None:
        """Report a range of numbers in 16 bits that lie less than their spacing apart."""
        if result.dtype in HALF_DTYPES:
            self._tell_of_positions(result.numel(), result)

    def cast(self, result: Tensor, tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        """Report whole numbers cast to 16 bits that do not hold them; note where a loss was cast."""
        if result.dtype in HALF_DTYPES and result.grad_fn is not None and result.numel() == 1:
            graph.note_line(result, graph.CAST_AT, own_line())
        if result.dtype not in HALF_DTYPES or result.requires_grad or not may_read(tensor):
            return
        if tensor.dtype in _WHOLE and 256 < tensor.numel() <= _MOST_COUNTED:
            self._tell_of_positions(tensor.unique().numel(), result)
        elif tensor.dtype not in HALF_DTYPES and 0 < tensor.numel() <= _FEW and _by_own_code():
            before, after = local(tensor).double().reshape(-1), local(result).double().reshape(-1)
            if bool((before != after).any()) and float(before.abs().amax()) > _LEAST_POSITIONS:
                self._rounded = [*self._rounded[-_CASTS:], (before, after, result.dtype, own_line())]

    def turned(self, result: Any, angles: Any, *args: Any, **kwargs: Any) -> None:
        """Report numbers that a cast had rounded, once cos or sin is taken of them as they are then."""
        if not self._rounded or not isinstance(angles, Tensor) or not may_read(angles):
            return
        there = local(angles).detach().double()
        for each in [each for each in self._rounded if bool(torch.isin(each[1], there).all())]:
            self._rounded = [other for other in self._rounded if other is not each]
            before, after, dtype, line = each
            off, at = (after - before).abs().max(0)
            facts = {"was": float(before[at]), "is": float(after[at]), "off": float(off)}
            self._tell("positions_rounded", dtype, facts, line)

    def product(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """See what autocast cast for a product: whole numbers in a row, or an optimizer's own."""
        if not isinstance(result, Tensor) or result.dtype not in HALF_DTYPES:
            return
        given = [each for one in args for each in (one if isinstance(one, (list, tuple)) else (one,))]
        cast = [each for each in given if isinstance(each, Tensor) and each.dtype == torch.float32]
        if self._recorder.in_step():
            if cast and self._recorder.here.step_in_autocast:
                self._recorder.here.cast_in_step = result.dtype
            return
        for each in cast:
            if _ROW <= each.numel() <= _MOST_COUNTED and not each.requires_grad and may_read(each):
                self._whole_numbers(each, result.dtype)

    def _whole_numbers(self, tensor: Tensor, dtype: torch.dtype) -> None:
        """Report positions that a cast merges: whole numbers without a gap, each as often as any other."""
        tensor = local(tensor).detach()
        if not bool((tensor.reshape(-1)[:_LEAST_POSITIONS].frac() == 0).all()):
            return
        numbers, often = tensor.unique(return_counts=True)
        in_a_row = float(numbers[-1] - numbers[0]) == numbers.numel() - 1 and bool((often == often[0]).all())
        if in_a_row and numbers.numel() >= _ROW and not bool(numbers.frac().any()):
            self._tell_of_positions(numbers.numel(), numbers.to(dtype))

    def _tell_of_positions(self, count: int, numbers: Tensor) -> None:
        if not may_read(numbers) or count > _MOST_COUNTED:
            return
        distinct = numbers.unique().numel()
        if distinct < count:
            self._tell("positions_rounded", numbers.dtype, {"count": count, "distinct": distinct})

    def _tell(self, code: str, dtype: torch.dtype, facts: dict[str, float], line: events.Line = None) -> None:
        self._recorder.record(events.Arithmetic, code=code, dtype=dtype, facts=facts, line=line)

    # --- constants that a format does not have

    def added(self, result: Tensor, tensor: Tensor, other: Any, *args: Any, **kwargs: Any) -> None:
        """Report a constant that vanishes or overflows, and a running sum that has stopped."""
        self.averages.added(result, tensor, other)
        if not isinstance(result, Tensor) or result.dtype not in HALF_DTYPES:
            return
        if isinstance(other, float) and _by_own_code():
            self._constant(other, result.dtype)
        if result.dim() == 0 and not result.requires_grad and may_read(result):
            self._summed(result, tensor, float(tensor), other)

    def clamped(self, result: Tensor, tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        """Report a lower bound that is 0, and an upper one that is 1."""
        low, high = (*args, None, None)[:2]
        low, high = kwargs.get("min", low), kwargs.get("max", high)
        if result.dtype in HALF_DTYPES and _by_own_code():
            if isinstance(low, float):
                self._constant(low, result.dtype)
            if isinstance(high, float) and high < 1.0 == float(torch.tensor(high).to(result.dtype)):
                self._tell("eps_vanishes", result.dtype, {"constant": high})

    def chosen(self, result: Tensor, *args: Any, **kwargs: Any) -> None:
        """Report a constant chosen that is inf."""
        if isinstance(result, Tensor) and result.dtype in HALF_DTYPES and _by_own_code():
            for each in args[1:]:
                if isinstance(each, float):
                    self._constant(each, result.dtype)

    def _constant(self, constant: float, dtype: torch.dtype) -> None:
        if constant == 0.0 or not math.isfinite(constant):
            return
        rounded = float(torch.tensor(constant, dtype=torch.float64).to(dtype))
        code = {0.0: "eps_vanishes", math.inf: "masked_row_nan"}.get(abs(rounded))
        if code is not None:
            self._tell(code, dtype, {"constant": constant})

    def _summed(self, result: Tensor, before: Tensor, was: float, term: Any) -> None:
        """Follow sums of single numbers: see one that a term leaves as it was, or that is far from true."""
        so_far = self._sums.pop(id(before), None)
        if so_far is None or so_far.tensor() is not before:
            so_far = _Sum(weakref.ref(before), exact=was)
        number = float(term) if isinstance(term, (Tensor, int, float)) else math.nan
        now = replace(so_far.with_term(number), tensor=weakref.ref(result))
        if now.terms >= _LONG_SUM and math.isfinite(was) and math.isfinite(number) and number != 0.0:
            if float(result) == was:
                self._tell("metric_stops", result.dtype, {"total": was, "term": number})
                now = replace(now, told=True)
            elif abs(float(result) - now.exact) > _FAR_OFF * now.magnitudes and not now.told:
                self._tell("metric_rounded", result.dtype, {"total": float(result), "exact": now.exact})
        self._sums[id(result)] = now

    # --- numbers read while they are scaled

    def read(self, result: Any, tensor: Tensor) -> None:
        """Report a scaled loss turned into a number."""
        node = tensor.grad_fn
        if node is not None and tensor.numel() == 1 and graph.is_marked(node) and _by_own_code():
            self._recorder.record(events.ScaledRead, what="the scaled loss")

    def measured(self, result: Any, *args: Any, **kwargs: Any) -> None:
        """Report the norm of a gradient taken while it is scaled."""
        tensor = next(iter(args), kwargs.get("input", kwargs.get("x")))
        if isinstance(tensor, Tensor) and _by_own_code() and self._recorder.is_scaled_gradient(tensor):
            self._recorder.record(events.ScaledRead, what="the norm of a gradient")

    # --- what is multiplied and added to in place: averages, gradients, sums

    def _multiplied_in_place(self, before: Any, tensor: Tensor, factor: Any) -> None:
        self._many_multiplied(before, (tensor,), factor)

    def _divided_in_place(self, before: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        self._many_multiplied(before, (tensor,))

    def _many_multiplied(self, before: Any, tensors: Any, factor: Any = None, *args: Any) -> None:
        """Note where averages, or gradients, may have been multiplied: a scaler is to divide these."""
        if self._recorder.in_step():
            return
        self.averages.multiplied(tensors, factor)
        line = line_outside()
        for each in tensors:
            if not each.requires_grad:
                self._recorder.known.book.multiplied(each, line)

    def _added_in_place(self, before: Any, tensor: Tensor, other: Any, **kwargs: Any) -> None:
        average = self.averages.added_to(before, tensor, other, **kwargs)
        if not average and tensor.dtype in HALF_DTYPES and tensor.dim() == 0 and before is not None:
            self._summed(tensor, tensor, float(before), other)


def _names_a_loss(function: str) -> bool:
    loss = function.endswith(("_loss", "_loss_nd", "cross_entropy", "_with_logits")) or function == "kl_div"
    return loss and not function.startswith("_")


def _by_own_code() -> bool:
    """Whether a person's own line made the call, and no library on the way."""
    caller = sys._getframe(4)  # of the spied call, of ``safely``, of ``read``, of this
    return is_own(caller.f_code.co_filename)


def _states_in(obj: Any, depth: int = 4) -> Iterator[str]:
    """Name the kinds of state in a nest of dicts and lists: optimizers' and scalers'."""
    if isinstance(obj, Mapping):
        if {"state", "param_groups"} <= obj.keys():
            yield "optimizer"
        elif {"scale", "growth_factor"} <= obj.keys():
            yield "scaler"
        elif depth:
            for value in obj.values():
                yield from _states_in(value, depth - 1)
    elif isinstance(obj, (list, tuple)) and depth and len(obj) < 100:
        for value in obj:
            yield from _states_in(value, depth - 1)
