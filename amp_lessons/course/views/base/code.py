"""Python source as HTML, in colours that are easy to read."""

from __future__ import annotations

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.style import Style
from pygments.token import Comment, Keyword, Number, Operator, String, Token

from amp_lessons._base.drawing.style import FIELD_COLOURS, GRID, INK, PAPER, PAPER_STYLE, QUIET

_PRE_STYLE = (
    f"margin:8px 0;padding:8px 12px;background-color:{PAPER};color:{INK};border:1px solid {GRID};"
    "border-radius:4px;overflow-x:auto;white-space:pre;font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);line-height:1.45"
)


_NUMBER = f'<span style="user-select:none;color:{QUIET}">{{:3}}  </span>'


class HouseStyle(Style):
    """The colours of a number's fields: dark enough on paper, and told apart by everyone."""

    background_color = PAPER
    styles = {  # noqa: RUF012 - what pygments reads
        Token: INK,
        Comment: f"italic {QUIET}",
        Keyword: f"bold {FIELD_COLOURS['mantissa']}",
        Operator.Word: f"bold {FIELD_COLOURS['mantissa']}",
        String: FIELD_COLOURS["exponent"],
        Number: FIELD_COLOURS["sign"],
    }


def code_html(source: str, label: str, numbered: bool = False) -> Markup:
    """Return ``source`` as a block of highlighted Python that the keyboard can scroll, called ``label``.

    ``numbered`` counts the lines from 1; what is copied from the block has no numbers in it.
    """
    coloured = highlight(source, PythonLexer(), HtmlFormatter(style=HouseStyle, noclasses=True, nowrap=True))
    if numbered:
        coloured = "\n".join(_NUMBER.format(i) + line for i, line in enumerate(coloured.splitlines(), 1))
    block = Markup('{}<pre class="amp-paper" style="{}" tabindex="0" role="region" aria-label="{}">{}</pre>')
    return block.format(PAPER_STYLE, _PRE_STYLE, label, Markup(coloured))
