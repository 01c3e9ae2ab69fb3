"""From the key press on a slider to new pixels on the page: our view beside the way tutorials do it.

Both show the same million gradients at a loss scale, in JupyterLab in headless Chromium, in one run.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Page

from tests.browser.chromium import find_chromium, launch_chromium
from tests.browser.jupyter_page import LabServer, NotebookPage

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
    "amp_lessons.views.CensusView": (OURS, "input[type=range]"),
    "interact + ax.hist": (TUTORIAL, ".noUi-handle"),
}
EVENTS = 20

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
    const outputs = document.querySelector(".jp-Notebook");
    const pixels = ["src", "d"];
    observer.observe(outputs, { subtree: true, childList: true, attributes: true, attributeFilter: pixels });
  });
}"""


def main() -> None:
    """Print the median time of each way, and how many times faster ours is."""
    chromium = find_chromium()
    if chromium is None:
        raise SystemExit("needs Chromium: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder, launch_chromium(chromium) as browser:
        root = Path(folder) / "course"
        root.mkdir()
        with LabServer(root, Path(folder)) as server:
            medians = {name: _median_ms(browser, server, *way) for name, way in WAYS.items()}
    for name, median_ms in medians.items():
        print(f"{name:32} {median_ms:6.1f} ms from key press to pixels (median of {EVENTS})")
    ours_ms, tutorial_ms = medians.values()
    print(f"{'':32} {tutorial_ms / ours_ms:6.1f} times faster")


def _median_ms(browser: Browser, server: LabServer, source: str, handle: str) -> float:
    name = "slider.ipynb"
    cells = [nbformat.v4.new_code_cell(cell.strip()) for cell in (GRADIENTS, source)]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), server.root / name)
    notebook = NotebookPage(browser.new_context(viewport={"width": 1280, "height": 1000}).new_page(), server)
    page = notebook.open(name).run_all().page
    page.locator(handle).last.focus()
    _press_ms(page)  # the first one also draws the axes
    return statistics.median(_press_ms(page) for _ in range(EVENTS))


def _press_ms(page: Page) -> float:
    page.evaluate(WATCH)
    page.keyboard.press("ArrowRight")
    return page.evaluate("window.ampPixels")
