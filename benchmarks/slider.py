"""From the key press on a slider to new pixels on the page: our view beside the way tutorials do it.

Both show the same million gradients at a loss scale, in JupyterLab in headless Chromium, in one run; our view
also as a page of the site, without a kernel. First single key presses, each when the page has come to rest;
then a key held down: how far behind the last press the picture ends.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup
from playwright.sync_api import Browser, Page

from amp_lessons.course.site import build as building
from amp_lessons.course.site.freezing import freeze
from amp_lessons.course.site.shell import Page as SitePage
from amp_lessons.course.site.shell import html_of
from amp_lessons.course.site.substitutes import live_html
from tools.browser.chromium import find_chromium, launch_chromium
from tools.browser.jupyter_page import LabServer, NotebookPage

GRADIENTS = """
import torch
generator = torch.Generator().manual_seed(0)
size = torch.randn(1_000_000, generator=generator)
gradients = torch.randn(1_000_000, generator=generator) * torch.exp2(4 * size - 14)
"""

OURS = """
from amp_lessons import views
views.CensusView(gradients)
"""

TUTORIAL = """
%matplotlib inline
import matplotlib.pyplot as plt
from ipywidgets import IntSlider, interact

@interact(exponent=IntSlider(0, 0, 40))
def show(exponent):
    scaled = (gradients * 2.0**exponent).half().float().abs()
    fig, ax = plt.subplots(figsize=(9, 3.5))
    ax.hist(scaled[scaled.isfinite() & (scaled > 0)].log2().numpy(), bins=64)
    plt.show()
"""

WAYS = {
    "amp_lessons.course.views.CensusView": (OURS, "input[type=range]"),
    "interact + ax.hist": (TUTORIAL, ".noUi-handle"),
}
EVENTS = 20
REST_MS = 200  # after the pixels the kernel still reports that it is idle, and JupyterLab shows it
BURST_KEYS, BURST_INTERVAL_MS = 20, 30

# Where pixels change: an image is added or gets another source, a shape of a drawing another outline.
OBSERVE = """observer.observe(document.querySelector(".jp-Notebook, main"), {
      subtree: true, childList: true, attributes: true, attributeFilter: ["src", "d"] });"""

# Times the next key press: from the browser's keydown event until what it changed in a picture, an image or
# the shapes of a drawing, has been decoded and painted.
WATCH = """() => {
  const isPixels = ({ attributeName, addedNodes }) =>
    attributeName || [...addedNodes].some((node) => node.matches?.("img, :has(img)"));
  window.ampPixels = new Promise((done) => {
    let pressed;
    const note = (event) => { pressed = event.timeStamp; };
    document.addEventListener("keydown", note, { capture: true, once: true });
    const observer = new MutationObserver(async (changes) => {
      if (!changes.some(isPixels)) return;
      observer.disconnect();
      await [...document.querySelectorAll(".jp-OutputArea img")].pop()?.decode();
      requestAnimationFrame(() => {  // runs before this frame is painted; a message is handled after
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => done(performance.now() - pressed);
        port2.postMessage(null);
      });
    });
    OBSERVE
  });
}""".replace("OBSERVE", OBSERVE)

# Notes when a key was last pressed, and when pixels last changed.
WATCH_ALL = """() => {
  const note = (event) => { window.ampPressed = event.timeStamp; };
  document.addEventListener("keydown", note, { capture: true });
  const observer = new MutationObserver(() => { window.ampChanged = performance.now(); });
  OBSERVE
}""".replace("OBSERVE", OBSERVE)


@dataclass(frozen=True)
class Lag:
    """Milliseconds from a key press to the pixels it changed: of single ones, and of the last of many."""

    single_ms: float
    burst_ms: float

    def __str__(self) -> str:
        return f"{self.single_ms:6.1f} ms (median of {EVENTS}) {self.burst_ms:8.1f} ms after a burst"


def main() -> None:
    """Print how long each way takes from key press to pixels, and how many times faster ours is."""
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, launch_chromium(chromium) as browser:
        root = Path(folder) / "course"
        root.mkdir()
        with LabServer(root, Path(folder)) as server:
            lags = {name: _lag(browser, server, *way) for name, way in WAYS.items()}
        on_page = _lag_on_page(browser, Path(folder))
    print(f"from key press to pixels; a burst is {BURST_KEYS} presses, {BURST_INTERVAL_MS} ms apart")
    for name, lag in lags.items():
        print(f"{name:32} {lag}")
    ours, tutorial = lags.values()
    print(f"{'':32} {tutorial.single_ms / ours.single_ms:6.1f} times faster")
    print(f"{'on a page of the site':32} {on_page}")


def _lag(browser: Browser, server: LabServer, source: str, handle: str) -> Lag:
    name = "slider.ipynb"
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in (GRADIENTS, source)]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), server.root / name)
    notebook = NotebookPage(browser.new_context(viewport={"width": 1280, "height": 1000}).new_page(), server)
    return _measured(notebook.open(name).run_all().page, handle)


def _lag_on_page(browser: Browser, folder: Path) -> Lag:
    """Freeze our view, and move it on a page of the site that consists of it."""
    names: dict[str, Any] = {}
    exec(f"{GRADIENTS}\nfrom amp_lessons import views\nview = views.CensusView(gradients)", names)
    frozen = freeze(names["view"], "census")
    assert frozen is not None
    site = folder / "site"
    (site / "frames").mkdir(parents=True)
    for name, script in frozen.scripts.items():
        (site / "frames" / name).write_text(script, "utf-8")
    made = SitePage(
        "census.html", "Census", live_html("census", Markup()), scripts=("widgets.js", "views.js")
    )
    building.write_assets(site / "assets", [made])
    (site / made.file).write_text(html_of(made, []), "utf-8")
    page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
    page.goto((site / made.file).as_uri())
    return _measured(page, WAYS["amp_lessons.course.views.CensusView"][1])


def _measured(page: Page, handle: str) -> Lag:
    page.locator(handle).last.focus()
    _press_ms(page)  # the first one also draws the axes
    return Lag(statistics.median(_press_ms(page) for _ in range(EVENTS)), _burst_ms(page))


def _press_ms(page: Page) -> float:
    page.wait_for_timeout(REST_MS)
    page.evaluate(WATCH)
    page.keyboard.press("ArrowRight")
    return page.evaluate("window.ampPixels")


def _burst_ms(page: Page) -> float:
    """Press a key many times, faster than some can follow, and return how late the last pixels come."""
    page.evaluate(WATCH_ALL)
    for _ in range(BURST_KEYS):
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(BURST_INTERVAL_MS)
    page.wait_for_timeout(10 * REST_MS)
    return page.evaluate("window.ampChanged - window.ampPressed")
