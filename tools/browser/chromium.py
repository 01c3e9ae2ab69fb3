"""The system's Chromium, headless."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_MS = 60_000  # what must come comes within this, on a machine that is busy with much else, too
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str | None:
    """Return the path of the first Chromium on the PATH, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def launch_chromium(path: str) -> Iterator[Browser]:
    """Run the Chromium at ``path`` until the block ends; what is expected of its pages has its time."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()
