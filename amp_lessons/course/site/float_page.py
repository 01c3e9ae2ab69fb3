"""One number in all formats side by side, whose bits can be clicked: the page that computes what is typed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from markupsafe import Markup

from amp_lessons.course.site.shell import Page, as_script
from amp_lessons.course.views.widgets.bits import button_groups, row_label
from amp_lessons.formats import FORMATS, FloatFormat, Specials

FIRST = ("0.1", "fp16")  # a number that no format holds, and the format whose bits the page begins with
SCRIPTS = ("widgets.js", "float-data.js", "numbers.js", "float.js")
BOX = Markup('<div id="formats">')  # which they fill

_BODY = Markup(
    """<h1>One number in every format</h1>
<p>Type a number, or the bits of one; or flip bits: arrow keys move along them, space flips one. What each
format makes of it is computed in this page, and the address says what stands here. Where a number is too
large, formats do as PyTorch {version} does on the CPU.</p>
{bits}"""
)
_BITS = Markup(
    """<p class="asking"><label for="value">Number or bits</label>
<input id="value" value="{value}" autocomplete="off" autocapitalize="off" spellcheck="false"
aria-describedby="refused">
<label for="format">bits of</label> <select id="format">{options}</select></p>
<p id="refused" role="alert"></p>
<p id="said" aria-live="polite"></p>
{box}{formats}</div>
<noscript><p>What is typed is computed by a script of this page, and scripts are off.</p></noscript>"""
)
_OPTION = Markup("<option{}>{}</option>").format
_FORMAT = Markup(
    '<section class="float" id="format-{name}">'
    "<h{level}><code>{name}</code> <span>{used_for}</span></h{level}>"
    '<div class="bits"></div><p class="became"></p></section>'
)


def float_page() -> Page:
    """Return the page; its script fills in what each format makes of the number."""
    return Page(
        "float.html",
        "One number in every format",
        _BODY.format(version=torch.__version__.partition("+")[0], bits=bits_html(*FIRST)),
        description="Bits and values of fp32, tf32, fp16, bf16, FP8 and FP4 side by side",
        scripts=SCRIPTS,
        listed="Bits",
    )


def bits_html(
    value: str, format: str = FIRST[1], formats: Iterable[str] = tuple(FORMATS), *, level: int = 2
) -> Markup:
    """Return what ``SCRIPTS`` bring to life, once on a page; it takes what the notebook's ``BitView`` does.

    ``level`` is that of the headings.
    """
    return _BITS.format(
        box=BOX,
        value=value,
        options=Markup("").join(
            _OPTION(Markup(" selected" if name == format else ""), name) for name in formats
        ),
        formats=Markup("").join(
            _FORMAT.format(name=name, used_for=FORMATS[name].used_for, level=level) for name in formats
        ),
    )


def float_script() -> str:
    """Return the script that brings what each format is; the page knows no format by itself."""
    return as_script("window.ampFormats", [described(each) for each in FORMATS.values()])


def described(float_format: FloatFormat) -> dict[str, object]:
    """Describe a format as ``numbers.js`` computes with it: widths, special codes, buttons of bits."""
    return {
        "name": float_format.name,
        "bits": float_format.bits,
        "signed": float_format.signed,
        "exponentBits": float_format.exponent_bits,
        "mantissaBits": float_format.mantissa_bits,
        "bias": float_format.bias,
        "hasZero": float_format.has_zero,
        "hasInfinity": float_format.has_infinity,
        "unsignedZero": float_format.specials is Specials.FNUZ,
        "maxCode": float_format.max_code,
        "nanCode": float_format.encode(math.nan),
        "beyondCode": float_format.encode(math.inf),
        "specials": float_format.specials.value,
        "label": row_label(float_format),
        "fields": list(button_groups(float_format)),
    }
