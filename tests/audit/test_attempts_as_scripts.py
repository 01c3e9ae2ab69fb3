"""Attempts at the loop exercises, run as plain loops under a watch: what an audit says of each."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch

from amp_lessons.audit.rules import ROWS
from amp_lessons.course.exercises.attempt_table import Table
from tests.audit.plain_loops import BF16, FP16, OPTIONS, POISONED, TINY_LOSS, mistakes, watched

EXERCISES = (*OPTIONS, "two_optimizers")
TABLES = {name: import_module(f"amp_lessons.course.exercises.{name}.attempts").TABLE for name in EXERCISES}

# attempts that do something to the process, which is no training: only an exercise runs them
NO_LOOPS = {
    "signature",
    "not_a_function",
    "time_limit",
    "ends_or_blocks_the_process",
    "patches_torch",
    "leaves_state_behind",
}

# the code that an audit gives in the place of another, and why
EQUIVALENT = {
    ("wrong_autocast_dtype", "loss_not_scaled"): "where fp16 was not asked for, no scaler was",
    ("no_graph", "no_gradients"): "the loss was made to require gradients: it has a graph of its own",
    ("history_scaled", "logs_scaled"): "an audit sees the number read, whatever it is read for",
    ("gradients_still_scaled", "step_bypasses_scaler"): "a loss may have any weight; the overflow is seen",
    ("parameters_frozen", "no_graph"): "in the next iteration backward has no graph to go through",
    ("another_scaler", "scaler_recreated"): "the new one is made in every iteration",
    ("scale_too_small", "gradients_all_zero"): "at such a scale all of them vanish",
}

# loops with a mistake that is seen in others
UNSEEN_LOOPS = {
    "two_optimizers-nothing_at_all": "no backward pass asks for a step",
    "train_with_amp-always_bfloat16": "which dtype was asked for is not known",
    "two_optimizers-always_bfloat16": "which dtype was asked for is not known",
    "accumulate_gradients-step_before_the_last_backward": "how long a window was to be is not known",
    "accumulate_gradients-left_over_clipped_before_the_scaler_looks": "what is left over is NaN",
    "train_with_amp-trained_in_float32_as_well": "a penalty, say, may be computed in fp32 on purpose",
    "two_optimizers-no_autocast_g": "a part of a model may run in fp32 on purpose",
    "two_optimizers-no_autocast_noise": "a part of a model may run in fp32 on purpose",
    "two_optimizers-discriminator_trained_twice": "a network may be trained twice in an iteration",
    "two_optimizers-steps_unless_nan": "the generator's step hides that the discriminator's was left out",
    "train_with_amp-saved_in_half_at_the_end": "the weights were cast after the last step",
    "train_with_amp-stops_at_nan": "to return is no exception: how many batches were to come is not known",
}

# on which problem a mistake shows, where it is not the first
SHOWS_ON = {
    "always_float16": BF16,
    "no_step_in_bfloat16": BF16,
    "two_steps_in_bfloat16": BF16,
    "weights_in_half_from_the_start": FP16,
    "init_scale_one": TINY_LOSS,
    "init_scale_two": TINY_LOSS,
    "scale_that_windows_undo": TINY_LOSS,
}


@pytest.fixture(scope="module", autouse=True)
def quick(one_thread):
    with torch.compiler.set_stance("force_eager"):
        yield


def loops(kind: str) -> list:
    """List the attempts that are loops, for parametrize: the first of each code to be run each time."""
    found = [
        (table, name, (table.exercise_id if kind == "right" else "", attempt[0]))
        for table in TABLES.values()
        for name, attempt in getattr(table, kind).items()
        if callable(attempt[-1]) and attempt[0] not in NO_LOOPS
    ]
    first = {of: (table, name) for table, name, of in reversed(found)}
    return [
        pytest.param(
            table,
            name,
            id=f"{table.exercise_id}-{name}",
            marks=() if first[of] == (table, name) else pytest.mark.thorough,
        )
        for table, name, of in found
    ]


def found(table: Table, name: str) -> set[str]:
    """Return the mistakes that an audit names in a wrong attempt, on the problems on which it could show.

    Of an attempt whose code nobody could see, the hardest problem will do.
    """
    code, _, attempt = table.wrong[name]
    codes = mistakes(watched(attempt, table.exercise_id, SHOWS_ON.get(name, POISONED)))
    if name not in SHOWS_ON and not named(code, codes) and not unseen(table, name):
        codes |= mistakes(watched(attempt, table.exercise_id, FP16))
    return codes


def unseen(table: Table, name: str) -> bool:
    """Whether an audit cannot see what is wrong with an attempt, as its row or the table above says."""
    code = table.wrong[name][0]
    equivalent = {of for of, _ in EQUIVALENT}
    only_checked = (code not in ROWS or ROWS[code].seen_by == "check") and code not in equivalent
    return only_checked or f"{table.exercise_id}-{name}" in UNSEEN_LOOPS


def named(code: str, codes: set[str]) -> bool:
    """Whether a code, or one that says the same, is among others."""
    return code in codes or any((code, other) in EQUIVALENT for other in codes)


@pytest.mark.parametrize(("table", "name"), loops("wrong"))
def test_wrong_attempts_are_named_or_cannot_be(table, name):
    codes = found(table, name)
    assert named(table.wrong[name][0], codes) != unseen(table, name), codes


@pytest.mark.thorough
@pytest.mark.parametrize(("code", "other"), EQUIVALENT)
def test_what_is_said_to_be_equivalent_is_all_that_is_seen(code, other):
    alike = [
        (table, name) for table in TABLES.values() for name in table.wrong if table.wrong[name][0] == code
    ]
    seen = (found(table, name) for table, name in alike)
    assert any(other in codes and code not in codes for codes in seen)


# at a small scale, also one that has fallen for it, the poisoned batch does not overflow: the step ruins the
# weights, and losses are NaN
OF_SMALL_SCALES = (
    "small_init_scale",
    "smallest_init_scale",
    "overflowed_batches_tried_again",
    "tried_again_from_a_large_scale",
)
AFTER_THE_POISON = {name: {"always_overflows"} for name in OF_SMALL_SCALES}
if not torch.cuda.is_available():  # CUDA's scaler is off, and nothing skips the batch
    AFTER_THE_POISON["old_spellings"] = {"weights_broken"}


@pytest.mark.few(12)
@pytest.mark.parametrize(("table", "name"), loops("right"))
@pytest.mark.parametrize("run", [POISONED, BF16], ids=["poisoned", "bf16"])
def test_right_attempts_get_no_finding(table, name, run):
    notes, attempt = table.right[name]
    report = watched(attempt, table.exercise_id, run)
    assert mistakes(report) - {*notes} == (AFTER_THE_POISON.get(name, set()) if run is POISONED else set())
    assert not [trouble for trouble in report.not_seen if "the audit's own trouble" in trouble]
    assert report.steps or report.ended


def test_the_tables_speak_of_attempts_that_there_are():
    attempts = {f"{table.exercise_id}-{name}" for table in TABLES.values() for name in table.wrong}
    assert UNSEEN_LOOPS.keys() <= attempts
    assert {other for _, other in EQUIVALENT} <= ROWS.keys()
