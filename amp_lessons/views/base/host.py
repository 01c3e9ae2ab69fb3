"""Whether there is a page that the views are shown on, and what that page has to be asked for."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any


def has_page() -> bool:
    """Say whether there is a page on which somebody looks: a Jupyter server's, a host's or an editor's.

    There is none where a program runs the cells, to store what they show or to compare it.
    """
    return "JPY_SESSION_NAME" in os.environ or on_colab() or on_kaggle() or in_vscode()


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
