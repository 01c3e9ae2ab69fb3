"""A whole HTML page: one file that needs no network, and may not use any."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

# Much of what stands on a page was written by somebody else. All of it is escaped; should something get
# through, the browser is forbidden whatever is not on the page.
_PAGE = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""  # noqa: E501 (a policy is one attribute)
)


def whole_page(title: str, body: Markup, style: Path) -> str:
    """Return a page of ``body`` below its title, in the style of a CSS file."""
    return _PAGE.format(title=title, style=Markup(style.read_text("utf-8")), body=body)
