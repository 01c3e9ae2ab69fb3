"""The scripts and styles of the views' own widgets, as their pages load them."""

from __future__ import annotations

from collections.abc import Iterator

import anywidget

from amp_lessons.course import views

_EXPORT = "export default { render };"


def widget_scripts() -> str:
    """Return one script with those of all widgets of the views, each in a scope of its own, by its class.

    A page that is opened as a file may load no module: what a module exports is returned instead.
    Raises ValueError for a script that exports something else.
    """
    made = ["window.ampWidgets = {};"]
    for widget in _widgets():
        script = str(widget._esm)
        if _EXPORT not in script:
            raise ValueError(f"{widget.__name__}'s script must end with {_EXPORT!r}")
        inside = script.replace(_EXPORT, "return { render };")
        made.append(f"window.ampWidgets.{widget.__name__} = (() => {{\n{inside}}})();")
    return "\n".join(made)


def widget_styles() -> str:
    """Return the styles of all widgets of the views, each once."""
    return "\n".join(dict.fromkeys(str(widget._css) for widget in _widgets() if hasattr(widget, "_css")))


def _widgets() -> Iterator[type[anywidget.AnyWidget]]:
    """Yield every class of the views that brings a script; all views are loaded for it."""
    for name in dir(views):
        getattr(views, name)
    found = anywidget.AnyWidget.__subclasses__()
    yield from (each for each in found if each.__module__.startswith(views.__name__))
