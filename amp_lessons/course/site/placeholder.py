"""What stands where a view comes to live: its controls as they will stand, around its picture.

The page is laid out once: nothing moves when the view comes. The elements are those of ``slider.js``,
``moving.js`` and ``views.js``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from markupsafe import Markup

from amp_lessons._base.drawing.picture import PX_PER_INCH
from amp_lessons.course.views.base.moving import SVG_DPI

_SLIDER = Markup(
    '<label><span style="min-width:min({label_width}ch,100%)">{label}</span><span class="amp-track">'
    '<input type="range" min="{min}" max="{max}" value="{value}"></span></label>'
    '<button type="button">−</button>'
    '<output style="min-width:min(max(5em,{readout_width}ch),100%)">{words}</output>'
    '<button type="button">+</button>'
)
_LIST = Markup("<label>{} <select>{}</select></label>")
_PAGE = Markup('<div class="amp-picture{ranged}" style="--narrowest:{narrowest}px">{verdict}{picture}</div>')
_VERDICT = Markup('<p class="amp-in-short amp-from-the-start">{}</p>')
_DRAWING = re.compile(r'<svg\b[^>]*viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)".*?</svg>', re.DOTALL)


def _pixels(points: str) -> int:
    return round(float(points) * PX_PER_INCH / SVG_DPI)


class Placeholder:
    """What stands in the place of the view that a file of frames brings."""

    def __init__(self, frames: Path) -> None:
        """Read what the view shows at first."""
        self._view = json.loads(frames.read_text("utf-8").partition(" = ")[2].rstrip().removesuffix(";"))
        self._base = self._view["frames"]["base"]
        self._moving = {axis["of"] for axis in self._view["axes"]}

    def page(self, name: str) -> str:
        """Return the ``caption`` below the picture, or its ``drawing``; nothing where there is no picture."""
        return next((self._text(state[name]) for state in self._base.values() if name in state), "")

    def drawings(self) -> list[tuple[str, tuple[int, int]]]:
        """Return the drawing and, where there is one, that for phones, each with its size in CSS pixels."""
        found = _DRAWING.finditer(self.page("drawing"))
        return [(each[0], (_pixels(each["width"]), _pixels(each["height"]))) for each in found]

    def html(self, picture: Markup) -> Markup:
        """Return it as HTML, around ``picture``."""
        return self._put(self._view["tree"], picture)

    def _put(self, node: dict[str, Any], picture: Markup) -> Markup:
        kind, state = node["kind"], self._base[node["of"]]
        is_control = kind in ("Field", "Button", "Slider", "Dropdown")
        if state.get("display") == "none" or (is_control and node["of"] not in self._moving):
            return Markup()
        own = {"Slider": " amp-slider", "row": " amp-row widget-hbox"}.get(kind, "")
        inside = [self._put(each, picture) for each in node["inside"]]
        if kind == "column" and node is self._view["tree"] and self._view["still"]:
            inside.append(Markup('<p class="how">{}</p>').format(self._view["still"]))
        return Markup('<div class="{}"{}>{}</div>').format(
            " ".join([f"amp-{kind.lower()}-widget{own}", *node["classes"]]),
            Markup(" inert" if is_control else ""),
            self._within(kind, state, picture) + Markup().join(inside),
        )

    def _within(self, kind: str, state: dict[str, Any], picture: Markup) -> Markup:
        if kind == "Slider":
            place = state["value"] - state["min"]
            words = state["beyond"] or (state["readouts"] or {place: state["value"]})[place]
            return _SLIDER.format(**state, words=words)
        if kind == "Dropdown":
            option = Markup("<option{}>{}</option>").format
            options = (
                option(Markup(" selected" if place == state["index"] else ""), words)
                for place, words in enumerate(state["_options_labels"])
            )
            return _LIST.format(state["description"], Markup().join(options))
        if kind == "MovingPage":
            verdict = _VERDICT.format(state["in_short"]) if state["in_short"] else ""
            ranged = " amp-ranged" if state["goal"][0] else ""
            return _PAGE.format(ranged=ranged, narrowest=state["narrowest"], verdict=verdict, picture=picture)
        return Markup(self._text(state["value"])) if kind == "HTML" else Markup()

    def _text(self, packed: Any) -> str:
        """Return a text as it was before it was packed (``freezing.Pack``)."""
        if isinstance(packed, str):
            return packed
        between, *steps = self._view["texts"][packed["#"]]
        line, lines = 0, []
        for step in steps:
            line += step
            lines.append(self._view["lines"][line])
        return str(between).join(lines)
