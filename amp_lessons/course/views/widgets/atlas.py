"""What autocast does to operations: the atlas of all, to be searched, and the dtypes that a few return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons import autocast
from amp_lessons._base.drawing.axes import sheet
from amp_lessons._base.drawing.picture import Picture, sentence_html
from amp_lessons._base.drawing.style import (
    INK,
    PAPER,
    PAPER_STYLE,
    QUIET,
    RULE_COLOURS,
    dtype_colour,
    house_style,
    scroll_shadow,
    size_that_fits,
    tint,
)
from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import COMPUTED_MARK
from amp_lessons.autocast import UNLISTED, Operation
from amp_lessons.course.views.base.controls import ControlValue, dropdown, row, text_field
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import Still
from amp_lessons.formats.dtypes import dtype_name

ANY_RULE = "any"


class AtlasView(View):
    """A table of operation × device, asked of the installed PyTorch; live, a real table and no picture."""

    search = ControlValue[str]("_search", "What is searched for; setting it is typing it.")
    rule = ControlValue[str]("_rule", "Which rule is shown: one of autocast.RULES, or any.")
    device_type = ControlValue[str]("_device", "The device that ``rule`` and the sentence are about.")
    differing = ControlValue[bool]("_differing", "Whether only differences of CUDA and CPU are shown.")

    def __init__(self, search: str = "", *, rule: str = ANY_RULE, differing: bool = False) -> None:
        """Show the operations whose name contains ``search``, filtered as the controls say."""
        self._search = text_field("search", search, placeholder="norm, softmax, mul …")
        self._rule = dropdown("rule", [ANY_RULE, *autocast.RULES], rule)
        self._device = dropdown("on", [(name, device) for device, name in DEVICE_NAMES.items()], "cuda")
        shown = [("all operations", False), ("only where CUDA and CPU differ", True)]
        self._differing = dropdown("show", shown, differing)
        controls = [self._search, self._rule, self._device, self._differing]
        super().__init__([row(*controls)], alt="Table.")
        self._refresh()
        self.follow(self._refresh, *controls)

    @property
    def found(self) -> tuple[autocast.Operation, ...]:
        """The operations in the table."""
        rule = None if self.rule == ANY_RULE else self.rule
        found = autocast.operations(
            self.search, rule=rule, device_type=self.device_type, differing=self.differing
        )
        return found if self.search else tuple(sorted(found, key=_place))

    def page_html(self) -> Markup:
        """Return the table itself, which can be read aloud and copied; a picture of it could not."""
        return atlas_html(self.found, self.caption)

    def _refresh(self) -> None:
        found = self.found
        # How many there are depends on PyTorch's version, and on whether it was built for CUDA.
        self.show(atlas_picture(found), self._describe(found), mark=COMPUTED_MARK)

    def _describe(self, found: tuple[autocast.Operation, ...]) -> str:
        """Count what was found; explain the operation if it was named, or say which names are near."""
        total = len(autocast.operations())
        count = f"{len(found)} of the {total} operations that some device lists{self._filters()}"
        if not self.search.strip():
            return f"{count}."
        try:
            sentence = autocast.explain(self.search.strip(), self.device_type)
        except ValueError as error:
            return f"{count}: their names contain {self.search!r}." if found else str(error)
        listed = sum(set(operation.rules.values()) != {autocast.UNLISTED} for operation in found)
        return (
            f"{sentence} (Of the {total} operations that some device lists, {listed} match{self._filters()}.)"
        )

    def _filters(self) -> str:
        """Describe what the dropdowns leave out."""
        rule = "" if self.rule == ANY_RULE else f", only {self.rule!r} on {DEVICE_NAMES[self.device_type]}"
        return rule + (", only where CUDA and CPU differ" if self.differing else "")


DEVICE_NAMES = {"cuda": "CUDA", "cpu": "CPU", "mps": "MPS", "xpu": "XPU"}
ROWS_IN_A_PICTURE = 14
_NAME_SHARE = 0.32
# What is wider than the page has a shadow where there is more of it, which shows through the shades of cells.
# JupyterLab aligns the cells of every table to the right, stripes its rows and makes its columns alike.
_STYLE = Markup(
    "<style>.amp-atlas [role=region] {{ max-width: 900px; max-height: 420px }} "
    ".amp-atlas [role=region] {{ color: {ink}; background:{shadow}, {paper} }} "
    ".amp-atlas table {{ mix-blend-mode: darken }} "
    ".amp-atlas table {{ table-layout: auto; width: max-content; min-width: 100%; border-collapse: collapse; "
    "font-size: 13px; line-height: 1.4 }} "
    ".amp-atlas caption {{ display: none }} "
    ".amp-atlas th, .amp-atlas td {{ padding: 0; text-align: left; border: 1px solid {paper}; "
    "white-space: nowrap }} "
    ".amp-atlas th, .amp-atlas td span {{ padding: 3px 6px }} "
    ".amp-atlas td span {{ display: block }}</style>"
).format(paper=PAPER, ink=INK, shadow=Markup(scroll_shadow(PAPER).replace("\n", "")))


# What models are written with, which comes first; what PyTorch keeps for itself comes last.
_FIRST = ("linear", "conv2d", "matmul", "softmax", "log_softmax", "layer_norm", "sum")


def _place(operation: Operation) -> tuple[int, bool]:
    first = _FIRST.index(operation.name) if operation.name in _FIRST else len(_FIRST)
    return first, operation.name.startswith("_")


def atlas_picture(found: Sequence[Operation]) -> Picture:
    """Draw the first operations; a last line says how many more there are."""
    shown, more = found[:ROWS_IN_A_PICTURE], len(found) - ROWS_IN_A_PICTURE
    rows = [(operation.name, [operation.rules[device] for device in DEVICE_NAMES]) for operation in shown]
    return _table_picture(rows, list(DEVICE_NAMES.values()), f"… and {more} more" if more > 0 else "")


def result_dtypes(results: Mapping[str, Mapping[str, torch.dtype]]) -> Still:
    """Show which dtype operations return: ``results`` maps the name of a device to dtypes by operation."""
    named = {
        device: {operation: dtype_name(dtype) for operation, dtype in by_operation.items()}
        for device, by_operation in results.items()
    }
    rows = [(name, [each[name] for each in named.values()]) for name in next(iter(named.values()))]
    said = []
    for device, dtypes in named.items():  # fp16 from a, b; fp32 from c
        by_dtype = {dtype: [name for name in dtypes if dtypes[name] == dtype] for dtype in dtypes.values()}
        gathered = "; ".join(f"{dtype} from {', '.join(names)}" for dtype, names in by_dtype.items())
        said.append(f"{device}: {gathered}.")
    caption = " ".join(said)
    return Still(_table_picture(rows, list(named)), caption, "Table of the dtypes of results.")


def _table_picture(
    rows: Sequence[tuple[str, Sequence[str]]], columns: Sequence[str], last: str = ""
) -> Picture:
    lines = 1 + len(rows) + bool(last)
    with house_style():
        figure = Figure(figsize=(9, max(0.27 * lines, 0.6)))
        axes = sheet(figure, 1, lines, (0.01, 0, 0.98, 1))
        for line, (name, words) in enumerate([("operation", columns), *rows]):
            _draw_line(axes, line, name, words, bold=line == 0)
        axes.text(0.005, lines - 0.5, last, va="center", color=QUIET)
    return Picture(figure)


def _draw_line(axes: Axes, line: int, name: str, words: Sequence[str], bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    size = size_that_fits(name, 0.98 * 9 * (_NAME_SHARE - 0.02), 10)
    axes.text(0.005, line + 0.5, name, va="center", fontweight="bold", fontsize=size)
    width = (1 - _NAME_SHARE) / len(words)
    for place, word in enumerate(words):
        left = _NAME_SHARE + place * width
        if not bold:
            cell = (left, line + 0.06), width * 0.97, 0.88
            axes.add_patch(mpl.patches.Rectangle(*cell, facecolor=_shade(word), edgecolor="none"))
        colour = QUIET if word == UNLISTED else INK
        axes.text(left + 0.01, line + 0.5, word, va="center", color=colour, fontweight=weight)


def atlas_html(found: Sequence[Operation], caption: str) -> Markup:
    """Return all of the operations as a table that can be read, searched and scrolled, below its caption."""
    rows = [
        [operation.name, *(_cell(operation.rules[device]) for device in DEVICE_NAMES)] for operation in found
    ]
    table = Table(("operation", *DEVICE_NAMES.values()), rows, "Table of operations")
    page = Markup('{}{}{}<div class="amp-atlas amp-paper">{}</div>')
    return page.format(PAPER_STYLE, _STYLE, sentence_html(caption), table.as_html())


def _cell(rule: str) -> Markup:
    shade = mpl.colors.to_hex(_shade(rule))
    return Markup('<span style="background:{};color:{}">{}</span>').format(shade, INK, rule)


def _shade(word: str) -> tuple[float, float, float]:
    """Return the pale colour of a rule, or of a dtype."""
    return tint(RULE_COLOURS.get(word, dtype_colour(word)), 0.07 if word == UNLISTED else 0.3)
