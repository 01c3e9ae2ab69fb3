"""Which lesson explains a mistake."""

from __future__ import annotations

_LESSONS = {
    "01": (
        "positions_rounded",
        "metric_stops",
        "metric_rounded",
        "average_stuck",
        "half_parameters",
        "updates_rounded_away",
    ),
    "02": (
        "no_autocast",
        "one_big_autocast",
        "backward_in_autocast",
        "loss_outside_autocast",
        "eps_vanishes",
        "masked_row_nan",
        "device_not_here",
    ),
    "03": (
        "always_overflows",
        "scale_never_lowered",
        "scaler_recreated",
        "loss_not_scaled",
        "loss_in_half",
        "scaler_with_bfloat16",
        "logs_scaled",
        "schedule_on_skipped_step",
        "average_on_skipped_step",
    ),
    "08": ("masters_not_fp32", "scales_apart", "skipped_apart", "weights_apart", "steps_apart"),
}
_BY_CODE = {code: lesson for lesson, codes in _LESSONS.items() for code in codes}


def lesson_of(code: str) -> str:
    """Return the number of the lesson that explains a finding; the loop itself is lesson 04's."""
    return _BY_CODE.get(code, "04")
