"""Pages of a site in windows of their own, without a network, and what each must be like."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tools.browser.chromium import PATIENCE_MS

LOOKS = [(width, scheme) for width in (390, 800, 1280) for scheme in ("light", "dark")]
_LOOKED_AT_CLOSELY = ((390, "dark"), (1280, "light"))
_SERIOUS = ("serious", "critical")


@contextmanager
def open_pages(browser: Browser, site: Path) -> Iterator[Callable[..., Page]]:
    """Open pages of a site by name; in the end nothing went wrong, and nothing came from elsewhere."""
    contexts, wrong = [], []

    def open_(name, query="", width=1280, scheme="light", **options):
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=scheme, offline=True, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: wrong.append(f"{name}: {error}"))
        page.on("console", lambda said: said.type in ("error", "warning") and wrong.append(said.text))
        page.on("request", lambda asked: wrong.append(asked.url) if re.match("https?:", asked.url) else None)
        page.on("dialog", lambda dialog: wrong.append(f"{name}: a dialog") or dialog.dismiss())
        page.goto((site / f"{name}.html").as_uri() + query)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []


def keeps_out(page: Page) -> list[str]:
    """List what keeps somebody out of a page, in each of the looks, with all that is folded opened.

    Sideways scrolling, and what axe finds in a narrow dark and a wide light one: that takes its time.
    """
    said = []
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    for width, scheme in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        scrolled = page.evaluate("document.documentElement.scrollWidth")
        found = [f"as wide as {scrolled} px"] * (scrolled > width)
        found += _seen_by_axe(page) if (width, scheme) in _LOOKED_AT_CLOSELY else []
        said += [f"{width} px, {scheme}: {each}" for each in found]
    return said


_HEIGHTS = """() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  const places = [...document.querySelectorAll(".amp-live")];
  return places.map((each) => each.getBoundingClientRect().height);
}"""


def grown(page: Page) -> list[float]:
    """Return by how many pixels each live view of a page, all unfolded, is higher once it has come."""
    page.route("**/views.js", lambda route: route.fulfill(body=""))
    page.reload()
    before = page.evaluate(_HEIGHTS)
    page.unroute("**/views.js")
    page.reload()
    page.evaluate(_HEIGHTS)
    for place in page.locator(".amp-live").all():
        place.scroll_into_view_if_needed()
    expect(page.locator(".amp-live:not(.amp-here)")).to_have_count(0)
    return [after - was for was, after in zip(before, page.evaluate(_HEIGHTS), strict=True)]


def _seen_by_axe(page: Page) -> list[str]:
    found = Axe().run(page, options={"preload": False, "resultTypes": ["violations"]}).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found if each["impact"] in _SERIOUS]
