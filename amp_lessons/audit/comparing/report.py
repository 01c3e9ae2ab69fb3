"""A comparison in words: where two runs part, by module and by step, in sections, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from amp_lessons._base.render import Section
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import counted, number, shortened
from amp_lessons._base.typed_json import dumps, plain

if TYPE_CHECKING:
    from amp_lessons.audit.comparing.comparison import Comparison, OfModule, Parting
    from amp_lessons.audit.comparing.pairing import Apart
    from amp_lessons.audit.comparing.recording import Recording
    from amp_lessons.audit.comparing.whole_runs import Movement

SCHEMA, VERSION = "amp-lessons comparison", 1
MODULES = "Modules, in the order of the forward pass"
STEPS = "Steps"
_MOST_MODULES = 12
_MOST_STEPS = 10
_MOST_WEIGHTS, _MOST_OTHERS = 5, 4
_LONGEST_NAME = 30
_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_UNDERFLOW = (
    "fp16 is one of the formats: what is small becomes 0 there, which rounding does not explain; a "
    "gradient scaler is there for that"
)


def as_json(comparison: Comparison) -> str:
    """Return what was found as JSON: all but the recordings themselves."""
    left_out = {"a", "b", "nudged"}
    found = {name: value for name, value in vars(comparison).items() if name not in left_out}
    entry: dict[str, Any] = {"schema": SCHEMA, "version": VERSION, "as_explained": comparison.as_explained}
    entry |= {"a": asdict(comparison.a.how), "b": asdict(comparison.b.how)}
    return dumps(entry | plain(found), indent=1) + "\n"


def headline(comparison: Comparison) -> str:
    """Say the verdict in a line."""
    if comparison.obstacle:
        return f"The runs cannot be compared: {comparison.obstacle}."
    first, moved = comparison.first, comparison.moved
    if first is None and moved is not None and moved.apart:
        return "The two runs part in how far their weights move."
    if first is None and comparison.parted is None:
        return "The two runs are the same, as far as they were recorded."
    if first is None:
        return "The two runs part no further than their formats explain."
    return f"The two runs part in {place(first)}, by more than its format explains."


def place(parting: Parting) -> str:
    """Name the place of a parting."""
    module = f"`{parting.module}`" if parting.module else "the loss, outside of all modules"
    if parting.phase == "input":
        return f"what {module} is given"
    return f"`{parting.what}`" if parting.phase == "weights" else module


def sections_of(comparison: Comparison, most_modules: int = _MOST_MODULES) -> Iterator[Section]:
    """Yield all that there is to say."""
    runs = {"first": comparison.a, "second": comparison.b}
    yield Section("The two runs", tuple(f"The {which}: {_run(run)}." for which, run in runs.items()))
    if comparison.before:
        yield Section("Otherwise before anything is computed", comparison.before)
    if comparison.moved is not None and comparison.moved.apart:
        yield Section("How far the weights move", tuple(_movement(comparison.moved)))
    if comparison.parted is not None and not comparison.obstacle:
        yield Section("Where they part", tuple(_partings(comparison)))
    if comparison.by_module:
        yield _modules(comparison, most_modules)
    if comparison.by_step:
        yield _steps(comparison)
    if comparison.parameters:
        yield Section("Weights that part first", tuple(_weights(comparison)))
    if comparison.notes:
        yield Section("Beside this", tuple(f"{each[0].upper()}{each[1:]}." for each in comparison.notes))
    yield Section("How this was found", (_how(comparison),))


def _run(run: Recording) -> str:
    words = " ".join([run.how.of or "a recording", *run.how.arguments])
    forced = f", in {run.how.precision}" if run.how.precision else ""
    steps = f"{counted(len(run.steps), 'optimizer step')} recorded"
    return f"{words}{forced}: {steps}, PyTorch {run.how.torch} on {run.how.device}"


def _movement(moved: Movement) -> Iterator[str]:
    less, more = ("first", "second") if moved.a < moved.b else ("second", "first")
    few, many = sorted((moved.a, moved.b))
    yield (
        f"From step {moved.first_step + 1} to step {moved.last_step + 1} the weights of the {less} run moved "
        f"by {number(few, 2)} of their norm, those of the {more} by {number(many, 2)}: "
        f"{number(few / many, 2)} of the way."
    )
    still = moved.still_in_a if less == "first" else moved.still_in_b
    if still:
        named = some([f"`{each}`" for each in still], _MOST_WEIGHTS)
        yield f"Exactly as they were in the {less} run: {named}."
    yield (
        "Updates below half the distance to the next number of the weights' format are rounded away: "
        "`amp-lessons audit` of that run says which are lost. Other learning rates do the same."
    )


def some(names: Sequence[str], most: int) -> str:
    """Name the first of several, and count those that are left: "a, b and 3 more"."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _partings(comparison: Comparison) -> Iterator[str]:
    first, parted = comparison.first, comparison.parted
    if first is not None:
        yield f"First worse than its format explains: {say(first)}"
        if "float16" in first.formats and first.difference > 0:
            yield f"{_UNDERFLOW[0].upper()}{_UNDERFLOW[1:]}."
    if parted is not None and parted != first:
        yield f"They differ first, as formats explain, in {say(parted)}"
    others = [each for each in comparison.worse if first is not None and each.module != first.module]
    names = list(dict.fromkeys(f"`{each.module}`" for each in others if each.step == others[0].step))
    if names:
        yield f"Differences of their own also have {some(names, _MOST_OTHERS)}."


def say(parting: Parting) -> str:
    """Say where two runs part, by how much, and how much of it is explained."""
    what = "" if parting.phase in ("weights", "input") else f", {parting.what}"
    phase = (
        "before any step" if (parting.phase, parting.step) == ("weights", 0) else f"step {parting.step + 1}"
    )
    given = f"{number(parting.inherited, 2)} of it came in; " if parting.inherited > 0 else ""
    floor = "" if parting.noise_floor is None else f" (nudged, it moves by {number(parting.noise_floor, 2)})"
    return (
        f"{place(parting)}{what}, {phase}: {number(parting.difference, 2)}; {given}"
        f"{formats(*parting.formats)} explains up to {number(parting.explained_up_to, 2)}{floor}."
    )


def formats(one: str, other: str) -> str:
    """Name the formats of two runs, once where they are the same."""
    one, other = _SHORT.get(one, one), _SHORT.get(other, other)
    return one if one == other else f"{one} against {other}"


def _modules(comparison: Comparison, most: int) -> Section:
    rows = list(comparison.by_module.values())
    shown = set(map(id, sorted(rows, key=lambda each: -each.own)[:most]))
    head = ("module", "formats", "forward", "floor", "backward", "of explained")
    cells = [_cells(each) for each in rows if id(each) in shown]
    said = (
        "Relative differences at the first step that was recorded; the floor is what nudging every number by "
        "a unit roundoff makes of the first run; the last column is the difference over what is explained."
    )
    notes = [f"{len(rows) - most} more modules have less of their own."] if len(rows) > most else []
    return Section(MODULES, (said,), table=Table(head, cells, "", notes))


def _cells(of: OfModule) -> tuple[str, ...]:
    name = shortened(of.module, _LONGEST_NAME)
    short = "/".join(dict.fromkeys(_SHORT.get(each, each) or "–" for each in of.formats))
    return name, short, _say(of.difference), _say(of.noise_floor), _say(of.gradient_difference), _say(of.own)


def _say(value: float | None) -> str:
    return "–" if value is None else number(value, 2)


def _steps(comparison: Comparison) -> Section:
    steps = comparison.by_step
    every = -(-len(steps) // _MOST_STEPS)
    shown = [each for i, each in enumerate(steps) if i % every == 0 or i == len(steps) - 1]
    head = ("step", "outputs", "floor", "gradients", "floor", "weights", "floor")
    rows = [(f"{of.step + 1}", *_two(of.output), *_two(of.gradient), *_two(of.weights)) for of in shown]
    said = "Relative differences; weights are those that a step begins with."
    return Section(STEPS, (said,), table=Table(head, rows))


def _two(apart: Apart | None) -> tuple[str, str]:
    return ("–", "–") if apart is None else (_say(apart.difference), _say(apart.floor))


def _weights(comparison: Comparison) -> Iterator[str]:
    named = [f"`{each.what}` ({number(each.difference, 2)})" for each in comparison.parameters]
    step = comparison.parameters[0].step
    when = "before any step" if step == 0 else f"after step {step}"
    yield f"{when[0].upper()}{when[1:]}: {some(named, _MOST_WEIGHTS)}."


def _how(comparison: Comparison) -> str:
    said = "Differences are norms over norms, estimated by sketches of 61 numbers, mostly to within 9 %."
    if comparison.nudged is not None:
        nudged, steps = len(comparison.nudged.steps), len(comparison.a.steps)
        of = f", in {counted(nudged, 'step')}; in those after it is an estimate" if nudged < steps else ""
        return f"{said} What a format explains was measured by nudging the first run{of}."
    return (
        f"{said} Without a nudged run what a format explains is an estimate, and of the backward pass only "
        "that is judged before which nothing differed."
    )
