"""What the page is that the views are shown on, and what of them it is known to show."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import ipywidgets


def shows_controls() -> bool:
    """Say whether controls are known to work here: ipywidgets 8, and a page that comes with it.

    Colab and Kaggle draw widgets with what their page brings along, whichever version the kernel has; VS Code
    fetches it from the net, if it may.
    """
    return ipywidgets_major() >= 8 and not (on_colab() or on_kaggle() or in_vscode())


def ipywidgets_major() -> int:
    """Return the first number of the version of ipywidgets: 7 displays a widget otherwise than 8."""
    return int(ipywidgets.__version__.partition(".")[0])


def on_colab() -> bool:
    """Say whether this is a kernel of Google Colab, which has loaded that package before any cell runs."""
    return "google.colab" in sys.modules


def on_kaggle() -> bool:
    """Say whether this is a kernel of Kaggle."""
    return "KAGGLE_KERNEL_RUN_TYPE" in os.environ


def in_vscode() -> bool:
    """Say whether VS Code shows this notebook: it leaves the notebook's path in the kernel."""
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and "__vsc_ipynb_file__" in shell.user_ns


@cache
def enable_widgets_on_colab() -> None:
    """Have Colab's page load widgets that do not come with ipywidgets; once, and it never raises.

    A learner can do nothing about it if that fails. anywidget would ask again for each of its widgets, and
    pass the exception on: it is given something to ask that does not fail.
    """
    if not on_colab():
        return
    try:
        from google.colab import output
    except ImportError:
        return
    try:
        output.enable_custom_widget_manager()
    except Exception:  # whatever it is, the pictures are there without it
        output.enable_custom_widget_manager = lambda *_, **__: None


def publish(data: dict[str, Any]) -> None:
    """Put an output below the running cell: ``data`` by mime type, of which the page takes the richest."""
    from IPython.display import display

    display(data, raw=True)
