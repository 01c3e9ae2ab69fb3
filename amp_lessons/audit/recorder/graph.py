"""Read from autograd's graph how a loss came about, and mark in it what a scaler has scaled."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Reversible
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.recorder.events import LARGE_NUMBER, Line
from amp_lessons.audit.recorder.later import may_read
from amp_lessons.precisions import HALF_DTYPES

_KEY = "amp_lessons.scaler"
_SCALED_GRADIENT = "amp_lessons.gradient"
_WENT_BACKWARD = "amp_lessons.backward"
MADE_AT, CAST_AT = "amp_lessons.made_at", "amp_lessons.cast_at"  # on which line
PART_AT = "amp_lessons.part_at"  # what may be a part of a loss
_OF_PYTORCH = re.compile(r"Backward\d+$")  # autograd's name of an operation that it knows
_MOST_LOOKED_AT = 5000  # operations of a penalty, or of all that a loss is made of
_MOST_OUTSIDE = 64  # operations between the end of autocast and a loss
_KEPT_IN_FP32 = re.compile(  # by autocast on CUDA: sums of exponentials, powers, and what is a loss by itself
    r"(LogSoftmax|Softmax|Logsumexp|Exp|Log|Pow|LinalgVectorNorm|Norm|Cumsum|Prod|NllLoss|MseLoss|SmoothL1Loss"
    r"|HuberLoss|SoftMarginLoss|BinaryCrossEntropy|BinaryCrossEntropyWithLogits|CtcLoss|KlDiv)(?:2D)?Backward\d+$"
)
_FAR_ENOUGH = 16  # operations: a scaled loss divided by the number of micro-batches, a sum of two losses


def operations(tensor: Tensor) -> tuple[str, ...]:
    """Name the last operations that made a tensor, the last one first, as autograd calls them."""
    return tuple(node.name() for node in _nodes(tensor))


def has_casts(tensor: Tensor) -> bool:
    """Whether something was cast on the way to a loss, as autocast does it."""
    return any("ToCopy" in node.name() for node in _nodes(tensor))


class Inside(NamedTuple):
    """The dtypes in the graph of a loss: those in 16 bits that were computed in, and of weights.

    ``masters`` says that weights in more bits were cast to one of them for what was computed, ``compiled``
    that a part of it is compiled code, which may have entered autocast by itself.
    """

    halves: frozenset[torch.dtype]
    weights: frozenset[torch.dtype]
    masters: bool
    compiled: bool


def look_inside(tensor: Tensor, is_copy: Callable[[torch.dtype], bool]) -> Inside:
    """Walk through the graph of a loss; weights of a dtype that ``is_copy`` were cast from those stepped."""
    halves: set[torch.dtype] = set()
    weights: set[torch.dtype] = set()
    masters = compiled = False
    for node in _below(tensor.grad_fn, lambda node: True, _MOST_LOOKED_AT):
        compiled = compiled or "Compiled" in node.name()
        variable = getattr(node, "variable", None)
        if variable is None:
            cast_to = HALF_DTYPES.intersection(each.dtype for each in node._input_metadata)
            halves |= cast_to
            if cast_to and "ToCopy" in node.name():
                given = [getattr(before, "variable", None) for before, _ in node.next_functions]
                masters = masters or any(isinstance(each, nn.Parameter) for each in given)
        elif variable.dtype in HALF_DTYPES:
            weights.add(variable.dtype)
    masters = masters or any(map(is_copy, weights))
    return Inside(frozenset(halves), frozenset(weights), masters, compiled)


class Unscaled(NamedTuple):
    """What is known of a loss in whose graph no scaler is: that it is ``surely`` as small as it was made,
    and that all of it is ``in_fp32``, or in more.
    """

    surely: bool = False
    in_fp32: bool = False


def look_for_scale(last: Any, scales: Collection[float]) -> Unscaled:
    """Walk through the graph of a loss that no scaler has scaled; somebody may have, by these ``scales``."""
    nodes = list(_below(last, lambda node: True, _MOST_LOOKED_AT))
    variables = [node.variable for node in nodes if hasattr(node, "variable")]
    operations = [node for node in nodes if not hasattr(node, "variable")]
    if len(nodes) >= _MOST_LOOKED_AT or not all(map(_is_known, nodes)):
        return Unscaled()  # a function that autograd does not know may do anything
    dtypes = {each.dtype for node in operations for each in node._input_metadata}
    dtypes |= {each.dtype for each in variables}
    marked = any(_KEY in node.metadata or _SCALED_GRADIENT in node.metadata for node in operations)
    surely = not marked and not any(_may_be(each, scales) for node in operations for each in _factors(node))
    return Unscaled(surely, in_fp32=not dtypes & HALF_DTYPES)


def has_unscaled_term(tensor: Tensor, scales: Collection[float]) -> bool:
    """Whether a loss is a scaled one and, added to it, another of the same weights that surely is not."""
    scaled, others = _summands([tensor])
    others = [each for each in others if look_for_scale(each, scales).surely]
    weights = {id(each) for term in scaled for each in _weights(term)} if others else set()
    return any(id(each) in weights for term in others for each in _weights(term))


def weights_beside(roots: Iterable[Tensor]) -> frozenset[int]:
    """Return the ids of weights that of losses which go backward together only unscaled ones reach."""
    scaled, others = _summands(roots)
    if not scaled or not others:
        return frozenset()
    nodes = [each for term in scaled for each in _below(term, lambda node: True, _MOST_LOOKED_AT)]
    if len(nodes) >= _MOST_LOOKED_AT or not all(map(_is_known, nodes)):
        return frozenset()  # some of their weights may be out of sight
    reached = {id(each) for each in _weights_among(nodes)}
    return frozenset(id(each) for term in others for each in _weights(term)) - reached


def _summands(roots: Iterable[Tensor]) -> tuple[list[Any], list[Any]]:
    """Return what losses are sums of: what a scaler has scaled, and what not."""
    first = [each.grad_fn for each in roots if each.grad_fn is not None]
    sums = [node for each in first for node in _below(each, _adds_up, _FAR_ENOUGH)]
    terms = [each for node in sums for each, _ in node.next_functions]
    terms = [each for each in (*first, *terms) if each is not None and each not in sums]
    scaled = [each for each in terms if _is_scaled(each)]
    return scaled, [each for each in terms if each not in scaled]


def _is_known(node: Any) -> bool:
    return hasattr(node, "variable") or bool(_OF_PYTORCH.search(node.name()))


def _adds_up(node: Any) -> bool:
    plain = node.name().startswith(("Add", "Sub")) and getattr(node, "_saved_alpha", 1) == 1
    return plain and _KEY not in node.metadata


def _is_scaled(last: Any) -> bool:
    return any(_KEY in node.metadata for node in _below(last, lambda node: True, _FAR_ENOUGH))


def _weights(last: Any) -> Iterator[nn.Parameter]:
    return _weights_among(_below(last, lambda node: True, _MOST_LOOKED_AT))


def _weights_among(nodes: Iterable[Any]) -> Iterator[nn.Parameter]:
    variables = (getattr(each, "variable", None) for each in nodes)
    return (each for each in variables if isinstance(each, nn.Parameter))


def _factors(node: Any) -> Iterator[Tensor]:
    constants = _saved(node) if node.name().startswith(("Mul", "Div")) else []
    return (each for each in constants if not each.requires_grad and each.numel() == 1)


def _may_be(number: Tensor, scales: Collection[float]) -> bool:
    return not may_read(number) or any(float(number) in (scale, 1 / scale) for scale in scales)


class PartInHalf(NamedTuple):
    """An operation of a loss, in words, its dtype, and the line on which it was called, if known."""

    operation: str
    dtype: torch.dtype
    line: Line


def part_in_half(tensor: Tensor, switches: Reversible[tuple[int, bool]]) -> PartInHalf | None:
    """Find what autocast keeps in fp32, and was computed in 16 bits between its end and the loss.

    Where autocast was on for nothing that the loss is made of, it has no end: a model in 16 bits has layers
    of its own that compute so, under ``autocast(enabled=False)`` as without.
    """
    loss = next((node for node in _nodes(tensor) if _KEY not in node.metadata), None)
    if loss is None or HALF_DTYPES.intersection(each.dtype for each in loss._input_metadata):
        return None  # all of it was

    def outside(node: Any) -> bool:
        return getattr(node, "variable", None) is None and _was_off(node, switches)

    for node in _below(tensor.grad_fn, outside, _MOST_OUTSIDE):
        found = _KEPT_IN_FP32.match(node.name())
        dtype = next((each.dtype for each in node._input_metadata), None) if found else None
        if found and dtype in HALF_DTYPES and _came_from_autocast(node, switches):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", found[1]).lower()
            return PartInHalf(words, dtype, node.metadata.get(PART_AT))
    return None


def _below(first: Any, wanted: Callable[[Any], bool], most: int) -> Iterator[Any]:
    """Yield the nodes of a graph, nearest to the loss first, as far as they and those before are wanted."""
    waiting, seen = deque([first]), {None}
    while waiting and len(seen) <= most:
        node = waiting.popleft()
        if node not in seen and wanted(node):
            seen.add(node)
            yield node
            waiting.extend(before for before, _ in node.next_functions)


def made_outside(tensor: Tensor, switches: Reversible[tuple[int, bool]]) -> bool:
    """Whether a loss came about where autocast had been switched off, by autograd's counts of operations.

    What only multiplies, divides or adds up losses afterwards does not tell.
    """
    return any(_was_off(node, switches) for node in _terms(tensor))


def _came_from_autocast(node: Any, switches: Reversible[tuple[int, bool]]) -> bool:
    below = _below(node, lambda each: getattr(each, "variable", None) is None, _MOST_LOOKED_AT)
    return any(_switched(each, switches) for each in below)


def _was_off(node: Any, switches: Reversible[tuple[int, bool]]) -> bool:
    return _switched(node, switches) is False


def _switched(node: Any, switches: Reversible[tuple[int, bool]]) -> bool | None:
    """Return whether autocast was on when an operation ran; None where nobody had switched it by then."""
    return next((on for count, on in reversed(switches) if count <= node._sequence_nr()), None)


def factor(tensor: Tensor) -> float:
    """Return by which number a loss was multiplied last, 1 where it was not, or not by a number."""
    node: Any = tensor.grad_fn
    if node is None or node.name() != "MulBackward0":
        return 1.0
    try:
        other = node._saved_other
    except RuntimeError:  # the graph has been freed
        return 1.0
    if isinstance(other, Tensor):
        return float(other) if other.numel() == 1 and may_read(other) else 1.0
    return float(other) if isinstance(other, (int, float)) else 1.0


def has_constant(tensor: Tensor) -> bool:
    """Whether near the end of a tensor's graph something is multiplied by several numbers that have none."""
    for node in _nodes(tensor):
        if node.name().startswith(("MulBackward", "DotBackward", "MvBackward", "MmBackward", "BmmBackward")):
            saved = [
                getattr(node, f"_saved_{name}", None) for name in ("self", "other", "mat2", "tensor", "vec")
            ]
            if any(isinstance(s, Tensor) and s.numel() > 1 and not s.requires_grad for s in saved):
                return True
    return False


def is_mean(tensor: Tensor) -> bool:
    """Whether a loss is a mean as it is: multiplied and divided by nothing but a scaler."""
    factors = ("MulBackward", "DivBackward")
    nodes = list(_nodes(tensor))
    means = [at for at, node in enumerate(nodes) if _takes_a_mean(node)]
    above = nodes[: means[0]] if means else []
    return bool(means) and not any(n.name().startswith(factors) and _KEY not in n.metadata for n in above)


def _takes_a_mean(node: Any) -> bool:
    try:
        return node.name() == "MeanBackward0" or getattr(node, "_saved_reduction", None) == _mean()
    except RuntimeError:  # the graph has been freed
        return False


@cache
def _mean() -> int:
    """Return the number by which losses save that they are means."""
    with torch.enable_grad():
        loss = F.mse_loss(torch.zeros(1, requires_grad=True), torch.zeros(1), reduction="mean")
    node: Any = loss.grad_fn
    return node._saved_reduction


def went_backward(tensor: Tensor) -> bool:
    """Mark a loss as one that went backward; say whether it was marked before.

    Parts of it, as 0.25 and 0.75 times the loss, are losses of their own.
    """
    below = (n for n in _nodes(tensor) if _KEY not in n.metadata and "ToCopy" not in n.name())
    node = next(below, None)
    if node is None:
        return False
    before = _WENT_BACKWARD in node.metadata
    node.metadata[_WENT_BACKWARD] = True
    return before


def _terms(tensor: Tensor) -> Iterator[Any]:
    """Yield the nodes of the losses below what multiplies, divides, casts or adds them up."""
    above = re.compile(r"(Mul|Div|ToCopy|Add|Sub)Backward")
    waiting, left = [tensor.grad_fn], _FAR_ENOUGH
    while waiting and left:
        node: Any = waiting.pop()
        if node is not None and above.match(node.name()):
            waiting.extend(before for before, _ in node.next_functions)
            left -= 1
        elif node is not None and getattr(node, "variable", None) is None:
            yield node


def note_line(tensor: Any, what: str, line: Line) -> None:
    """Write into the graph of a tensor on which line it was made (``MADE_AT``) or cast (``CAST_AT``)."""
    if isinstance(tensor, Tensor) and tensor.grad_fn is not None and line is not None:
        node: Any = tensor.grad_fn
        node.metadata[what] = line


def line_of(tensor: Tensor, what: str) -> Line:
    """Return the line that ``note_line`` has written near the end of a tensor's graph, None without one."""
    return next((node.metadata[what] for node in _nodes(tensor) if what in node.metadata), None)


def mark(tensor: Any, scaler: int) -> None:
    """Write into the graph of a scaled loss which scaler it was."""
    if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
        node: Any = tensor.grad_fn
        node.metadata[_KEY] = scaler


def is_marked(node: Any) -> bool:
    """Whether a node made a scaled loss, or divided one."""
    following = [before for before, _ in node.next_functions if before is not None]
    return _KEY in node.metadata or any(_KEY in each.metadata for each in following)


def scaler_of(tensor: Tensor) -> int | None:
    """Return the scaler by whose scale a loss was multiplied, None if it was by none."""
    return next((node.metadata[_KEY] for node in _nodes(tensor) if _KEY in node.metadata), None)


def mark_gradients(gradients: Iterable[Any]) -> bool:
    """Write into the graphs of gradients that they are a scaled loss's; say whether one has a graph."""
    nodes: list[Any] = [each.grad_fn for each in gradients if isinstance(each, Tensor)]
    for node in nodes:
        if node is not None:
            node.metadata[_SCALED_GRADIENT] = True
    return any(node is not None for node in nodes)


def penalises_scaled(loss: Tensor, since: int, scale: float | None) -> bool:
    """Whether a scaled loss is made of marked gradients, and nothing on the way divides them by the scale.

    Only what came about after autograd's count of operations was ``since`` is looked at. Whatever might have
    divided them counts as if it had: another tensor, a function that autograd does not know. A penalty that
    is added to a loss once that is scaled has the scale in it already, as a norm or a sum of magnitudes has.
    """
    waiting: list[tuple[Any, bool]] = [(loss.grad_fn, False)]
    seen: set[tuple[Any, bool]] = set()
    while waiting and len(seen) < _MOST_LOOKED_AT:
        node, scaled = waiting.pop()
        if node is None or (node, scaled) in seen:
            continue
        seen.add((node, scaled))
        if _SCALED_GRADIENT in node.metadata:
            if scaled:
                return True
        elif node._sequence_nr() >= since and not _may_unscale(node, scale):
            above = scaled or _KEY in node.metadata
            waiting.extend((before, above) for before, _ in node.next_functions)
    return False


def _may_unscale(node: Any, scale: float | None) -> bool:
    """Whether an operation may have taken a factor as large as the scale from what it was given."""
    name = node.name()
    if not _OF_PYTORCH.search(name) or name.startswith(("Foreach", "Log")):
        return True
    operands = _saved(node) if name.startswith(("DivBackward", "MulBackward")) else []
    by_itself = name.startswith("Div") and any(each.requires_grad for each in operands)
    return by_itself or any(_as_large(each, name, scale) for each in operands if not each.requires_grad)


def _as_large(constant: Tensor, name: str, scale: float | None) -> bool:
    """Whether dividing by a constant, or multiplying by it, takes off a factor about as large as a scale.

    A weight of 1e-5 does not, however large the scale: somebody wrote it, and the scale has no part in it.
    """
    if constant.numel() != 1 or not may_read(constant):
        return True
    enough, number = (scale or LARGE_NUMBER) / 2, abs(float(constant))
    large = number >= enough if name.startswith("Div") else number * enough <= 1.0
    left = number * scale if scale and name.startswith("Mul") else number / scale if scale else number
    return large and not (_few_digits(number) and not _few_digits(left))


def _few_digits(number: float) -> bool:
    """Whether a number has two decimal digits at most, as people write it, apart from its powers of ten."""
    return math.isclose(float(f"{number:.1e}"), number, rel_tol=1e-6)


def _saved(node: Any) -> list[Tensor]:
    """Return what a product or a quotient has saved of its operands; nothing once the graph is freed."""
    try:
        saved = [getattr(node, name, None) for name in ("_saved_self", "_saved_other")]
    except RuntimeError:
        return []
    return [each for each in saved if isinstance(each, Tensor)]


def _nodes(tensor: Tensor) -> Iterator[Any]:
    return _below(tensor.grad_fn, lambda node: True, _FAR_ENOUGH)
