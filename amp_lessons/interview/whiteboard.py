"""One page to print, and then to draw from memory: computed by the course, no number typed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from markupsafe import Markup

from amp_lessons import autocast, fp8, parallel
from amp_lessons.autocast import Policy
from amp_lessons.formats import FORMATS
from amp_lessons.fp8 import Recipe
from amp_lessons.text.tables import Table
from amp_lessons.text.words import number, power_of_two

_FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1")
# The operation that is asked about, and the others of its kind: a test asks about these, too.
OPERATIONS = {
    "matmul": ("linear", "conv2d", "bmm"),
    "softmax": ("log_softmax", "cumsum"),
    "layer_norm": (),
    "mse_loss": ("l1_loss",),
    "exp": ("pow",),
    "add": ("relu", "dropout"),
    "cat": ("stack",),
}
_RESULTS = {
    Policy.LOWER_PRECISION: "16 bits",
    Policy.FP32: "fp32",
    Policy.FP32_SET_OPT_DTYPE: "fp32",
    Policy.FP32_APPEND_DTYPE: "fp32",
    Policy.PROMOTE: "widest input",
    Policy.BANNED: "refused",
    None: "as its inputs",
}
_MEMORY = {"fp32": "fp32, or autocast", "zero": "16 bits, fp32 masters"}
_PARTS = ("weights", "gradients", "fp32 masters", "Adam's moments")
_RANKS = 8
_RECIPES = ("tensorwise", "delayed", "rowwise", "mxfp8", "nvfp4")


@dataclass(frozen=True)
class Sheet:
    """The page: tables, in the order in which they are read."""

    tables: tuple[Table, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        markdown = "\n\n".join(table.as_markdown() for table in self.tables)
        return {"text/plain": str(self), "text/markdown": markdown, "text/html": self.as_html()}

    def as_html(self) -> Markup:
        """Render the tables, each in a section of its own; those of class ``words`` read from the left."""
        section = Markup('<section class="{}">{}</section>')
        kinds = ("words" if says_words(table) else "numbers" for table in self.tables)
        return Markup("\n").join(map(section.format, kinds, (table.as_html() for table in self.tables)))


def says_words(table: Table) -> bool:
    """Return whether there are words beside the names in the first column, and not only numbers."""
    return any(" " in cell for row in table.rows for cell in row[1:])


def sheet() -> Sheet:
    """Return the page, as it is with the PyTorch that is installed."""
    return Sheet((_formats(), _rules(), _cycle(), _memory(), _ranks(), _eight_bits()))


def result_on(device: str, operation: str) -> str:
    """Return the dtype of an operation's result under autocast, in two words."""
    listed = sorted(autocast.policy(device).items())
    found = (policy for name, policy in listed if name.partition(".")[0] == f"aten::{operation}")
    return _RESULTS[next(found, None)]


def _formats() -> Table:
    rows = (
        {
            "format": name,
            "s/e/m": f"{int(each.signed)}/{each.exponent_bits}/{each.mantissa_bits}",
            "largest": number(each.max, 5),
            "smallest normal": power_of_two(each.smallest_normal),
            "smallest": power_of_two(each.smallest_subnormal or each.smallest_normal),
            "epsilon": power_of_two(each.epsilon),
        }
        for name, each in ((name, FORMATS[name]) for name in _FORMATS)
    )
    return Table.of(rows, "Formats: the exponent makes the range, the mantissa the precision")


def _rules() -> Table:
    rows = (
        {
            "result of": ", ".join((name, *others)),
            "on CUDA": result_on("cuda", name),
            "on a CPU": result_on("cpu", name),
        }
        for name, others in OPERATIONS.items()
    )
    return Table.of(rows, "Autocast: the dtype of what comes out")


def _cycle() -> Table:
    """Describe what a step is made of, with the defaults of the installed scaler."""
    scaler = torch.amp.GradScaler("cpu")
    down, up = scaler.get_backoff_factor(), scaler.get_growth_factor()
    clean = scaler.get_growth_interval()
    rows = (
        ("with torch.autocast(...):", "forward and loss, not backward"),
        ("scaler.scale(loss).backward()", f"gradients x scale, {power_of_two(scaler.get_scale())} at first"),
        ("scaler.unscale_(optimizer)", "before clipping or logging"),
        ("scaler.step(optimizer)", "skipped at an inf or NaN"),
        (
            "scaler.update()",
            f"x {down:g} if skipped, x {up:g} after {clean:,} in a row",
        ),
    )
    return Table(("a step in fp16", "what it does"), rows, "The cycle: in bf16 without the scaler")


def _memory() -> Table:
    rows = (
        {
            "training in": words,
            **{part: parallel.CONVENTIONS[name].bytes_per_parameter.get(part, 0) for part in _PARTS},
            "sum": parallel.CONVENTIONS[name].total,
        }
        for name, words in _MEMORY.items()
    )
    return Table.of(rows, "Memory: bytes per parameter that stay; activations come on top")


def _ranks() -> Table:
    """Describe what a rank holds and sends, in units that do not depend on the model."""
    count = _RANKS * 10**6
    stages = ("ddp", "zero1", "zero2", "zero3")
    held = {stage: parallel.memory_per_rank(count, _RANKS, stage).bytes_per_parameter for stage in stages}
    sent = float(parallel.sent_bytes("all-reduce", count, _RANKS)) / count
    rows = [("bytes held", *(f"{held[stage]:g}" for stage in stages))]
    caption = f"Ranks: bytes per parameter on each of {_RANKS}, 16 bits with fp32 masters"
    note = f"A ring all-reduce sends {sent:g} times the tensor from each of {_RANKS}: 2 (n - 1) / n."
    return Table(("stage", *stages), rows, caption, [note])


def _eight_bits() -> Table:
    return Table.of(
        map(_recipe_row, map(fp8.RECIPES.__getitem__, _RECIPES)), "FP8 and FP4: who shares a scale"
    )


def _recipe_row(recipe: Recipe) -> dict[str, object]:
    assert recipe.output is not None
    assert recipe.input_gradient is not None
    left = recipe.output.left
    return {
        "recipe": recipe.name,
        "forward": str(left),
        "gradient": str(recipe.input_gradient.left),
        "scale": left.scale.name + (", rounded up" if left.rule == "up" else ""),
        "amax from": f"{recipe.amax_history:,} steps" if recipe.amax_history else "now",
    }
