"""Mistakes with the scales of small formats that more than one exercise can find: one wording for each.

``what`` says whose scale it is, and where it was seen.
"""

from __future__ import annotations

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.course.exercises.small_formats.watching_there import too_large_from
from amp_lessons.formats import FloatFormat


def misplaced(amax: float, scale: float, element: FloatFormat, what: str) -> Finding | None:
    """Report a scale that takes the largest magnitude beyond the format's last value, or far below it."""
    lands_at, half = amax / scale, element.max / 2 * (1 - 1e-6)  # the division by the scale may have rounded
    if half <= lands_at <= too_large_from(element):
        return None
    said = f"{what}: by a scale of {scale:.3g} the largest magnitude, {amax:.4g}, lands at {lands_at:.4g}, "
    hint = "divide before the cast by a scale that takes the largest magnitude of all to the last number, "
    hint += "amax / torch.finfo(dtype).max in fp32; of powers of two take the one above"
    if lands_at < half:
        said += f"below half of {element.max:g}: small numbers underflow that a smaller scale would keep"
        return failed("range_unused", said, hint)
    cut = f"{1 - element.max / lands_at:.0%}"
    said += (
        f"above {element.max:g}: a clamp, or a cast since PyTorch 2.13, cuts it by {cut}, older ones make NaN"
    )
    return failed("saturates", said, hint)


_SPREAD = (
    "let inf and NaN spread: the largest magnitude is then inf or NaN, and so is the scale; whoever leaves "
    "them out writes NaN where they were"
)


def inf_hidden(what: str, effect: str, hint: str = _SPREAD) -> Finding:
    """Report that an overflow can no longer be seen."""
    return failed("inf_hidden", f"{what}: {effect}; an overflow that nobody sees is trained on", hint)


def zero_amax(
    what: str,
    seen: str,
    common: str = "gradients that are all zero are common, in an embedding or behind a dead ReLU",
) -> Finding:
    """Report what comes of dividing by a largest magnitude of zero; ``common`` says where one is met."""
    hint = "a largest magnitude of 0 needs any scale that is not 0: amax.clamp(min=1e-30), say"
    return failed("zero_amax", f"{what}: {seen}; {common}", hint)


def computed_in_16_bits(what: str, seen: str) -> Finding:
    """Report that 16 bits were taken where 32 are needed."""
    return failed(
        "computed_in_16_bits",
        f"{what}: {seen}, as happens where 16 bits compute it: fp32 was asked for",
        "begin with .float(): a scale without dimensions does not make a bf16 tensor times it fp32, and fp16 "
        "cannot hold every scale",
    )
