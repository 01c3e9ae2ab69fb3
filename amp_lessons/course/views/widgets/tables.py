"""Tables that need no controls: what follows from a format's bits, and the source's models confronted.

Of each model: what the source claims, what is predicted here, what was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from amp_lessons._base.text.bars import with_bar
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import number, power_of_two
from amp_lessons.course.bench import (
    SOURCE_MODELS,
    WORKLOADS,
    MissingExtraError,
    Recording,
    confront,
    recordings,
    require_transformers,
)
from amp_lessons.course.bench.confrontation import Measured, recorded
from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.measure import Difference


def format_table(names: Sequence[str] = tuple(FORMATS)) -> Table:
    """Return what follows from the bit counts of each format: range, precision and number of values."""
    return Table.of(
        [_row(FORMATS[name]) for name in names],
        "Everything but its use is computed from the bits, bias and special patterns of each format. "
        "s/e/m: bits of sign, exponent, mantissa.",
    )


def _row(each: FloatFormat) -> dict[str, object]:
    smallest = each.smallest_subnormal or each.smallest_normal  # a scale alone, as e8m0 is, has no subnormals
    return {
        "format": each.name,
        "bits": each.bits,
        "s/e/m": f"{int(each.signed)}/{each.exponent_bits}/{each.mantissa_bits}",
        "largest": number(each.max, 5),
        "smallest normal": power_of_two(each.smallest_normal),
        "smallest": power_of_two(smallest),
        "epsilon": power_of_two(each.epsilon),
        "digits": f"{each.decimal_digits:.2f}",
        "binades": math.frexp(each.max)[1] - math.frexp(each.smallest_normal)[1] + 1,
        "finite values": f"{each.finite_value_count:,}",
        "inf, nan": "both" if each.has_infinity else "nan" if each.has_nan else "none",
        "used for": each.used_for,
    }


UNKNOWN = "—"
NO_CLAIM = "no claim"


def source_table(
    precision: str = "fp16",
    *,
    models: Iterable[str] = tuple(SOURCE_MODELS),
    found: Iterable[Recording] | None = None,
) -> Table:
    """Confront the claims about ``models`` with predictions made here and with recorded measurements.

    ``models`` are names of ``bench.WORKLOADS``, by default those that a source makes a claim about.

    ``precision`` is the autocast of prediction and measurement; of a CPU's measurements those in bf16 are
    shown, because most CPUs have no arithmetic for fp16. ``found`` are the recordings, by default all that
    ``bench.recordings`` finds. Of several that know a model the first counts: one's own before the course's,
    a GPU's before a CPU's, then the latest. Small models count only where nothing was recorded at full size:
    they would stand beside claims that are not about them. The first call takes some seconds for each model.
    """
    everything = tuple(recordings() if found is None else found)
    known = tuple(each for each in everything if each.preset == "full") or everything
    caption = (
        f"Speed of a whole step with AdamW, channels first, against eager fp32 without TF32 (in convolutions "
        f"neither) and against eager TF32, with 99 % intervals. Memory: the fraction of the peak that is "
        f"saved. Predicted: full size, AdamW, {precision} autocast, CUDA's rules. {_missing_extra()}"
    )
    each = with_bar(tuple(models), "predicting memory of models")
    return Table.of([row for model in each for row in _rows(model, precision, known)], caption.strip())


def _rows(model: str, precision: str, known: tuple[Recording, ...]) -> Iterator[dict[str, object]]:
    """Yield the rows of one model: its claim and prediction, and one line per measured mode."""
    claim = WORKLOADS[model].claim
    first, *others = _measured(model, precision, known) or [None]
    speed = f"{claim.speedup}x on {claim.gpu}" if claim else NO_CLAIM
    memory = _share(claim.memory_saving) if claim else NO_CLAIM
    yield _cells(model, speed, memory, _predicted(model, precision), first)
    for each in others:
        yield _cells(model, "", "", "", each)


def _measured(model: str, precision: str, known: tuple[Recording, ...]) -> tuple[Measured, ...]:
    """Return what the first recording says that knows the model in a precision that fits its device."""
    for recording in known:
        for name in ("bf16", precision) if recording.setup.device_type == "cpu" else (precision,):
            if found := recorded(model, [recording], name):
                return found
    return ()


def _cells(model: str, speed: str, memory: str, predicted: str, each: Measured | None) -> dict[str, object]:
    return {
        "model": model,
        "speed claimed": speed,
        "over fp32": _speedup(each.speedup) if each else UNKNOWN,
        "over TF32": _speedup(each.over_tf32) if each else UNKNOWN,
        "memory claimed": memory,
        "predicted": predicted,
        "measured memory": _share(each.memory_saving) if each else UNKNOWN,
        "where": _where(model, each),
    }


def _where(model: str, each: Measured | None) -> str:
    if each is None:
        return f"not measured yet: `amp-lessons bench --models {model}`"
    return f"{each.precision}, {each.preset} size, {each.mode}, {each.provenance}"


def _speedup(found: Difference | None) -> str:
    if found is None:
        return UNKNOWN
    ratio = f"{found.speedup:.2f}x" if found.verdict != "no difference" else found.verdict
    return f"{ratio} ({found.low:.2f} to {found.high:.2f})"


def _predicted(model: str, precision: str) -> str:
    try:
        return _share(confront(model, precision=precision).predicted_memory_saving)
    except MissingExtraError:
        return UNKNOWN


def _missing_extra() -> str:
    """Return what to install where nothing can be predicted, or nothing."""
    try:
        require_transformers()
    except MissingExtraError as error:
        return str(error)
    return ""


def _share(saving: float | None) -> str:
    return UNKNOWN if saving is None else f"{100 * saving:.0f} %"
