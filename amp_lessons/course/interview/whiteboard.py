"""One page to print, and then to draw from memory: computed by the course, no number typed in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from markupsafe import Markup

from amp_lessons import autocast, fp8, measure, parallel
from amp_lessons._base.text.tables import Shown, Table
from amp_lessons._base.text.words import number, power_of_two
from amp_lessons.autocast import Policy
from amp_lessons.formats import FORMATS
from amp_lessons.fp8 import Recipe

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
# What consists of several operations, or is none of autocast's lists: run, under either device's rules.
RUN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long)),
    "F.batch_norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    "SDPA": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
}
_RESULTS: dict[Policy | None, str] = {
    Policy.LOWER_PRECISION: "16 bits",
    **dict.fromkeys((Policy.FP32, Policy.FP32_SET_OPT_DTYPE, Policy.FP32_APPEND_DTYPE), "fp32"),
    Policy.PROMOTE: "widest input",
    Policy.BANNED: "refused",
    None: "as its inputs",
}
_MEMORY = {"fp32": "fp32, or autocast", "zero": "16 bits, fp32 masters"}
_PARTS = ("weights", "gradients", "fp32 masters", "Adam's moments")
_RANKS = 8
_GPUS = ("A100 SXM 80 GB", "H100 SXM", "B200 SXM", "MI300X", "MI350X")
_RECIPES = ("tensorwise", "delayed", "rowwise", "deepseek_v3", "mxfp8", "mxfp4", "nvfp4")


@dataclass(frozen=True, repr=False)
class Sheet(Shown):
    """The page: tables, in the order in which they are read."""

    tables: tuple[Table, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))

    def as_markdown(self) -> str:
        """Render the tables, one below the other."""
        return "\n\n".join(table.as_markdown() for table in self.tables)

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
    parts = (_formats, _rules, _cycle, _lost, _memory, _ranks, _eight_bits, _rates, _on_paper)
    return Sheet(tuple(part() for part in parts))


def result_on(device: str, operation: str) -> str:
    """Return the dtype of an operation's result under autocast, in two words."""
    return _RESULTS[policy_of(operation, device)]


def policy_of(operation: str, device: str) -> Policy | None:
    """Return what autocast does to an operation: to the first of its overloads that is in a list."""
    listed = sorted(autocast.policy(device).items())
    return next((policy for each, policy in listed if each.partition(".")[0] == f"aten::{operation}"), None)


def result_of_running(device: str, name: str) -> str:
    """Return the dtype of what ``RUN`` gives for 16 bits, under the autocast rules of a device."""
    rules = autocast.cuda_rules() if device == "cuda" else nullcontext()
    with rules, torch.autocast("cpu", torch.bfloat16):
        return "fp32" if RUN[name](torch.ones(4, 4).bfloat16()).dtype == torch.float32 else "16 bits"


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
        (", ".join((name, *others)), *(result_on(device, name) for device in ("cuda", "cpu")))
        for name, others in OPERATIONS.items()
    )
    run = (
        (f"{name}, of 16 bits", *(result_of_running(device, name) for device in ("cuda", "cpu")))
        for name in RUN
    )
    notes = (
        "Batch norm keeps its statistics in fp32 and returns the dtype of its input.",
        "Inputs of several dtypes give the widest: cat and stack do on CUDA, too.",
    )
    head = ("result of", "on CUDA", "on a CPU")
    return Table(head, (*rows, *run), "Autocast: the dtype of what comes out", notes)


def _cycle() -> Table:
    """Describe what a step is made of, with the defaults of the installed scaler."""
    scaler = torch.amp.GradScaler("cpu")
    down, up = scaler.get_backoff_factor(), scaler.get_growth_factor()
    clean = scaler.get_growth_interval()
    rows = (
        ("with torch.autocast(...):", "forward and loss, not backward"),
        ("scaler.scale(loss).backward()", f"gradients x scale, {power_of_two(scaler.get_scale())} at first"),
        ("scaler.unscale_(optimizer)", "before clipping or logging"),
        ("clip_grad_norm_(parameters, 1.0)", "the norm of the true gradients"),
        ("scaler.step(optimizer)", "skipped at an inf or NaN"),
        ("scaler.update()", f"x {down:g} if skipped, x {up:g} after {clean:,} in a row"),
    )
    return Table(("a step in fp16", "what it does"), rows, "The cycle: in bf16 without the scaler")


def _noted(table: Table, *notes: str) -> Table:
    return Table(table.head, table.rows, table.caption, list(notes))


def _lost() -> Table:
    """Say below what an update is rounded away, and where counting by ones ends."""
    rows = (
        {
            "format": name,
            "1 + u = 1 up to": power_of_two(float(each.epsilon) / 2),
            "1 - u = 1 up to": power_of_two(float(each.epsilon) / 4),
            "100 + u = 100 up to": f"{each.spacing(100.0) / 2:.4g}",
            "counts up to": f"{2 ** (each.mantissa_bits + 1):,}",
        }
        for name, each in ((name, FORMATS[name]) for name in ("fp32", "fp16", "bf16"))
    )
    return Table.of(rows, "Half the gap: what is smaller is lost; below 1 the gap is half as wide")


def _memory() -> Table:
    rows = (
        {
            "training in": words,
            **{
                part.removeprefix("Adam's "): parallel.CONVENTIONS[name].bytes_per_parameter.get(part, 0)
                for part in _PARTS
            },
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
    recipes = [fp8.RECIPES[name] for name in _RECIPES]
    squares = [
        f"{product.right.granularity} in {recipe.name}"
        for recipe in recipes
        if (product := recipe.output) and product.right.granularity != product.left.granularity
    ]
    notes = (
        "up: rounded up to a power of two. + fp32: and one scale for the tensor, besides.",
        f"Weights: {', '.join(squares)}; else as forward.",
    )
    return _noted(Table.of(map(_recipe_row, recipes), "FP8 and FP4: who shares a scale"), *notes)


def _rates() -> Table:
    """Take the rates of dense products from data sheets, and where memory ceases to bound."""
    columns = ("fp32", "tf32", "bf16", "fp8_e4m3", "fp4_e2m1")
    rows = (
        {
            "GPU": name,
            **{each: _rate(measure.GPUS[name], each) for each in columns},
            "TB/s": f"{measure.GPUS[name].bytes_per_s / 1e12:.3g}",
            "bf16 ridge": f"{measure.GPUS[name].ridge_point('bf16'):.0f}",
        }
        for name in _GPUS
    )
    note = "Ridge: operations a byte beyond which products bound; n x n in 16 bits has n/3."
    return _noted(Table.of(rows, "Rates: TFLOP/s of dense products, by data sheet"), note)


def _rate(sheet: measure.DataSheet, precision: str) -> str:
    found = sheet.flop_per_s.get(precision)
    return f"{found / 1e12:.4g}" if found else "none"


def _on_paper() -> Table:
    """Work out an example of each rule of thumb."""
    n, d, gpus, share, h100 = 7e9, 1e12, 256, 0.4, measure.GPUS["H100 SXM"]
    days = 6 * n * d / (gpus * h100.flop_per_s["bf16"] * share) / 86_400
    trained = f"{n / 1e9:g}B, {d / 1e12:g}T tokens: {days:.0f} days, {gpus} H100s, {share:.0%}"
    part, factor = 0.6, 8
    amdahl = f"p {part:g}, s {factor}: {1 / (1 - part + part / factor):.2f} times as fast"
    decoded = f"{n / 1e9:g}B bf16, H100: {2e3 * n / h100.bytes_per_s:.1f} ms a token"
    layers, heads, width = 32, 8, 128
    cached = f"{layers}, {heads}, {width}, bf16: {2 * layers * heads * width * 2 / 1e3:.0f} kB a token"
    rows = (
        ("training", "6 N D operations", trained),
        ("Amdahl", "1 / (1 - p + p/s)", amdahl),
        ("decoding", "weights / bandwidth", decoded),
        ("KV cache", "2 layers KV-heads width bytes", cached),
    )
    return Table(("what", "rule", "example"), rows, "On paper: rules and an example of each")


def _recipe_row(recipe: Recipe) -> dict[str, object]:
    assert recipe.output is not None
    assert recipe.input_gradient is not None
    left = recipe.output.left
    return {
        "recipe": recipe.name,
        "forward": str(left),
        "gradient": str(recipe.input_gradient.left),
        "scale": left.scale.name + (", up" if left.rule == "up" else "") + " + fp32" * left.has_tensor_scale,
        "amax from": f"{recipe.amax_history:,} steps" if recipe.amax_history else "now",
    }
