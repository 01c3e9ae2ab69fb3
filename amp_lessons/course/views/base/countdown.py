"""A clock on the page that runs down by itself: the kernel says once how much is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets


class Countdown(anywidget.AnyWidget):
    """A clock that shows how much time is left while it runs, and nothing while it does not.

    The page counts, not the kernel, which may be busy with a learner's cell. Screen readers hear of each
    minute, politely, and not of each second; the clock takes no focus.
    """

    _esm = Path(__file__).with_name("countdown.js")
    _css = Path(__file__).with_name("countdown.css")
    # ``set`` numbers the times that it was set: the same rest may be meant anew.
    state: Any = traitlets.Dict({"left_s": 0.0, "running": False, "set": 0}).tag(sync=True)

    over = traitlets.Unicode().tag(sync=True)

    def __init__(self, left_s: Callable[[], float], over: str) -> None:
        """Show nothing yet; ``left_s`` says how many seconds are left, once it runs.

        ``over`` is what it says when there are none.
        """
        super().__init__(over=over)
        self._left_s = left_s
        self.on_msg(lambda *_: self.correct())  # a page that is opened later asks what is left by now

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self.state["running"]

    def start(self) -> None:
        """Run down from what is left now."""
        self.state = {"left_s": self._left_s(), "running": True, "set": self.state["set"] + 1}

    def stop(self) -> None:
        """Show nothing any more."""
        self.state = {"left_s": 0.0, "running": False, "set": self.state["set"] + 1}

    def correct(self) -> None:
        """Put the clock right, if it runs."""
        if self.running:
            self.start()
